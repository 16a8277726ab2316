"""What every request passes on its way in and out. Plain ASGI: a wrapper that copied the stream would hide a client's
disconnection from the routes, and cost time for every token."""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
from collections.abc import Iterable

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from minisgl.server.budget import Budget
from minisgl.server.errors import ApiError
from minisgl.server.gate import RETRY_AFTER_S
from minisgl.server.page_files import PATHS as PAGE_PATHS
from minisgl.server.records import RequestBook, RequestRecord
from minisgl.server.responses import error_response
from minisgl.utils.logging import get_logger

logger = get_logger(__name__)
# For probes and Prometheus, which have no key, and for the page, which asks people for theirs.
OPEN_PATHS = frozenset({"/health", "/metrics"}) | PAGE_PATHS
REQUEST_ID, CLIENT_REQUEST_ID = b"x-request-id", b"x-client-request-id"
MAX_CLIENT_ID_LEN = 128
MAX_PATH_LEN = 256  # in the log; ours are shorter
BODY_TIMEOUT_S = 60.0
MAX_BODIES = 64
LARGE_ANSWER = 2**16  # bytes: what a connection buffers for a client that does not read
_NOT_IN_AN_ID = re.compile(rb"[^\x21-\x7e]")


class Recorder:
    """Gives each request an id of our own, and a record that lives as long as the request.

    Routes find the id as `request.state.request_id`. It is the response's x-request-id; what the client sent under
    that name comes back, made harmless, as x-client-request-id.
    """

    def __init__(self, app: ASGIApp, book: RequestBook) -> None:
        self._app = app
        self._book = book

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = f"req-{secrets.token_hex(12)}"
        scope.setdefault("state", {})["request_id"] = request_id
        trace_parent = (header(scope, b"traceparent") or b"").decode("latin-1") or None
        record = RequestRecord(request_id, scope["method"], scope["path"][:MAX_PATH_LEN], trace_parent)
        own_headers = _id_headers(request_id, header(scope, REQUEST_ID))

        async def send_noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                message["headers"] = [*message.get("headers", ()), *own_headers]
            await send(message)

        self._book.open(record)
        try:
            await self._app(scope, receive, send_noted)
        finally:
            self._book.close(record)


class Guard:
    """An exception that nobody foresaw becomes a 500 that says nothing of our insides; the log has the traceback.

    Once the response has begun it can only be cut off, which the HTTP layer does when we return.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def send_noted(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, send_noted)
        except ClientDisconnect:
            return
        except Exception:
            logger.exception("request %s failed", scope["state"]["request_id"])
            if not has_begun:
                response = error_response(ApiError(500, "the server made a mistake; its log says more"))
                await response(scope, receive, send)


class ApiKey:
    """401 for whoever does not send the key as `Authorization: Bearer KEY`, on every path but OPEN_PATHS."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._key = key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in OPEN_PATHS or self._is_right(header(scope, b"authorization")):
            await self._app(scope, receive, send)
            return
        error = ApiError(
            401,
            "this server wants an API key: Authorization: Bearer KEY",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )
        await error_response(error)(scope, receive, send)

    def _is_right(self, authorization: bytes | None) -> bool:
        """The comparison takes the same time wherever the first wrong byte is."""
        scheme, _, given = (authorization or b"").partition(b" ")
        return hmac.compare_digest(given.strip(), self._key) and scheme.lower() == b"bearer"


class AnswerLimit:
    """503 in the place of a large answer for which there is no room beside all that clients have not read yet.

    A route that has waited for room says so by `holds_room` in the request's state. Counted here until the connection
    has the answer, and by the connection from then on. Streams come in small pieces, and are counted there alone.
    """

    def __init__(self, app: ASGIApp, answers: Budget) -> None:
        self._app = app
        self._answers = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        num_bytes, is_refused = 0, False

        async def send_counted(message: Message) -> None:
            nonlocal num_bytes, is_refused
            if message["type"] == "http.response.start" and not scope["state"].get("holds_room"):
                length = _length(message)
                is_refused = length >= LARGE_ANSWER and not self._answers.has_room(length)
                if is_refused:
                    await error_response(self._answers.full_error())(scope, receive, send)
                elif length >= LARGE_ANSWER:
                    num_bytes = length
                    self._answers.add(length)
            if not is_refused:
                await send(message)

        try:
            await self._app(scope, receive, send_counted)
        finally:
            self._answers.remove(num_bytes)


def _length(start: Message) -> int:
    """0 for an answer of unknown length."""
    return next((int(value) for name, value in start.get("headers", ()) if name == b"content-length"), 0)


class BodyLimit:
    """413 for a body of more than max_bytes: at once if its length is announced, else when it has come that far.

    400 for one that has not come whole after BODY_TIMEOUT_S: a client that sends nothing holds nothing for ever. 429
    when the bodies of all open requests together are larger than MAX_BODIES of the largest: memory has an end.
    """

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._all_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        length = header(scope, b"content-length")
        if length is not None and int(length) > self._max_bytes:
            await error_response(self._too_large())(scope, receive, send)
            return
        deadline = asyncio.get_running_loop().time() + BODY_TIMEOUT_S
        num_bytes, is_whole = 0, False

        async def receive_counted() -> Message:
            nonlocal num_bytes, is_whole
            if is_whole:  # what comes then is the client's leaving, for which routes wait as long as they run
                return await receive()
            message = await _receive_until(deadline, receive)
            num_new = len(message.get("body", b""))
            num_bytes += num_new
            self._all_bytes += num_new
            if num_bytes > self._max_bytes:
                raise self._too_large()
            if self._all_bytes > self._max_bytes * MAX_BODIES:
                raise self._too_many()
            is_whole = not message.get("more_body", False)
            return message

        try:
            await self._app(scope, receive_counted, send)
        finally:
            self._all_bytes -= num_bytes

    def _too_large(self) -> ApiError:
        """The connection is closed, so that nothing waits for the rest of the body."""
        return ApiError(
            413,
            f"the body is larger than this server's limit of {self._max_bytes} bytes",
            code="request_too_large",
            headers={"Connection": "close"},
        )

    def _too_many(self) -> ApiError:
        return ApiError(
            429,
            f"the bodies of open requests are over {self._max_bytes * MAX_BODIES} bytes together; try again later",
            code="rate_limit_exceeded",
            headers={"Retry-After": str(RETRY_AFTER_S), "Connection": "close"},
        )


async def _receive_until(deadline: float, receive: Receive) -> Message:
    try:
        async with asyncio.timeout_at(deadline):
            return await receive()
    except TimeoutError:
        message = f"the body did not come within {BODY_TIMEOUT_S:g} seconds"
        raise ApiError(400, message, code="request_too_slow", headers={"Connection": "close"}) from None


def header(scope: Scope, name: bytes) -> bytes | None:
    """The first of that name; names are in lower case in ASGI."""
    headers: Iterable[tuple[bytes, bytes]] = scope["headers"]
    return next((value for key, value in headers if key == name), None)


def _id_headers(request_id: str, sent: bytes | None) -> list[tuple[bytes, bytes]]:
    headers = [(REQUEST_ID, request_id.encode())]
    if sent and (harmless := _NOT_IN_AN_ID.sub(b"", sent)[:MAX_CLIENT_ID_LEN]):
        headers.append((CLIENT_REQUEST_ID, harmless))
    return headers
