"""HTTP/1 as uvicorn reads it, and what it leaves open: heads and trailers end, and errors are OpenAI's."""

from __future__ import annotations

import asyncio
import re
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, ASGISendEvent, Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from minisgl.server.budget import Budget
from minisgl.server.errors import ApiError
from minisgl.server.response_writer import BODY_EXTENSION

MAX_HEAD_BYTES = 2**16
TOO_LONG = f"the request's head is over {MAX_HEAD_BYTES} bytes"
TRAILERS_TOO_LONG = f"a chunk's extensions, or the trailers after the body, are over {MAX_HEAD_BYTES} bytes"
NOT_ONE_HOST = "a request of HTTP/1.1 has one header Host (RFC 9112, 3.2)"
BAD_HOST = "the header Host is not a host name or address with a port, or without one"
UNKNOWN_CODING = "of transfer codings only 'chunked' is understood"
HEAD_TIMEOUT_S = 60.0
WRITE_TIMEOUT_S = 60.0  # longer than a network is likely to be down; TCP itself would wait a quarter of an hour
CHUNKLESS_VERSIONS = ("0.9", "1.0")
_HOST = re.compile(rb"\s*(?:\[[0-9a-fA-F:.]+\]|[\w.~!$&'()*+,;=%-]*)(?::[0-9]*)?\s*", re.ASCII)
_UPGRADE = re.compile(rb"(?<=\n)upgrade(?=:)", re.IGNORECASE)


class ChunkedBody:
    """The `Body` of one response: its pieces are the same chunks as those that go through uvicorn's `send`."""

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    @classmethod
    def opener(cls, cycle: RequestResponseCycle) -> Callable[[], ChunkedBody]:
        """Callable that returns the body. The response's scope holds it, so it refers to the response weakly: a
        finished request, with all of its head, would otherwise be a cycle that waits for the collector.
        """
        found = weakref.ref(cycle)

        def open_body() -> ChunkedBody:
            cycle = found()
            assert cycle is not None, "the response is over"
            return cls(cycle)

        return open_body

    def is_clear(self) -> bool:
        cycle = self._cycle
        is_open = cycle.chunked_encoding and not (cycle.response_complete or cycle.disconnected)
        return bool(is_open) and not cycle.flow.write_paused

    def write(self, piece: bytes) -> None:
        self._cycle.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))


async def without_chunks(
    cycle: RequestResponseCycle,
    app: ASGI3Application,
    scope: Scope,
    receive: ASGIReceiveCallable,
    send: ASGISendCallable,
) -> None:
    """`app` for a client older than chunks: a body of unknown length ends with the connection (RFC 9112, 6.1)."""
    ends_with_connection = False

    async def send_plain(message: ASGISendEvent) -> None:
        nonlocal ends_with_connection
        if message["type"] == "http.response.start":
            ends_with_connection = all(name.lower() != b"content-length" for name, _ in message.get("headers", ()))
            if ends_with_connection:
                cycle.chunked_encoding, cycle.keep_alive = False, False
        elif message["type"] == "http.response.body" and ends_with_connection:
            cycle.expected_content_length = len(message.get("body", b""))
        await send(message)

    await app(scope, receive, send_plain)


class HttpProtocol(HttpToolsProtocol):
    """One connection. It is closed when no request is being served and the next one's head takes HEAD_TIMEOUT_S.

    Offers to upgrade (Java's client makes one with every request, to HTTP/2) are passed over as if they were not
    there: the parser would drop the request's body for them. Trailers are passed over too: they are no headers.

    It is dropped when its client has taken nothing for WRITE_TIMEOUT_S of an answer that waits; that ends the request.
    answers: counts what waits, of all connections together.
    """

    _head_bytes: int | None = None  # that came after the piece in which the head began; None: no head has begun
    _is_in_body = False
    _num_idle = 0  # bytes since the last one of the body: lengths of chunks, extensions, trailers
    _fault: str | None = None  # of the head, in our words
    _clock: asyncio.TimerHandle | None = None
    _write_clock: asyncio.TimerHandle | None = None  # runs while nothing more can be written
    _num_counted = 0  # bytes that wait, by the last count

    def __init__(self, *args: Any, answers: Budget | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._answers = answers

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_clock()
        self._stop_write_clock()
        self._count_unread(0)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._count_unread(self.transport.get_write_buffer_size())
        self._start_write_clock()

    def resume_writing(self) -> None:
        self._stop_write_clock()
        self._count_unread(0)
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        was_in_head = self._head_bytes is not None
        self._num_idle += len(data)
        super().data_received(data if self._is_in_body else _without_upgrade(data))
        if was_in_head and self._head_bytes is not None:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.send_400_response(TOO_LONG)
        if self._is_in_body and self._num_idle > MAX_HEAD_BYTES:
            self.send_400_response(TRAILERS_TOO_LONG)
        if self.cycle is None or self.cycle.response_complete:
            self._start_clock()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_in_body:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._fault = _fault_of(self.url, self.headers, self.parser.get_http_version())
        if self._fault is not None:
            raise ValueError(self._fault)  # the parser stops, and uvicorn answers with a 400
        self._stop_clock()
        self._head_bytes, self._num_idle, self._is_in_body = None, 0, True
        super().on_headers_complete()
        if self.expect_100_continue:  # if it is refused before that, nobody can tell whether its body still comes
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._num_idle = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_in_body = False
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """The connection's last words, unless an answer is on its way, into which they would be mixed."""
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            body = ApiError(400, self._fault or msg, code="invalid_http").encode()
            head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
            self.transport.write(STATUS_LINE[400] + head + body)
        self.transport.close()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        scope: dict[str, Any] = cycle.scope  # type: ignore[assignment]
        if scope["http_version"] in CHUNKLESS_VERSIONS:
            app = partial(without_chunks, cycle, app)
        else:
            scope["extensions"] = {BODY_EXTENSION: ChunkedBody.opener(cycle)}
        super()._start_asgi_task(cycle, app)

    def _start_clock(self) -> None:
        if self._clock is None and not self.transport.is_closing():
            self._clock = self.loop.call_later(HEAD_TIMEOUT_S, self.transport.close)

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _count_unread(self, num_bytes: int) -> None:
        if self._answers is not None:
            self._answers.add(num_bytes)
            self._answers.remove(self._num_counted)
            self._num_counted = num_bytes

    def _start_write_clock(self) -> None:
        num_unsent = self.transport.get_write_buffer_size()
        self._write_clock = self.loop.call_later(WRITE_TIMEOUT_S, self._check_writing, num_unsent)

    def _check_writing(self, num_unsent: int) -> None:
        if self.transport.get_write_buffer_size() < num_unsent:
            self._start_write_clock()
        else:
            self.transport.abort()

    def _stop_write_clock(self) -> None:
        if self._write_clock is not None:
            self._write_clock.cancel()


def _fault_of(url: bytes, headers: list[tuple[bytes, bytes]], version: str) -> str | None:
    """Why a complete head is refused, which may have come in one piece."""
    if len(url) + sum(len(name) + len(value) + len(b": \r\n") for name, value in headers) > MAX_HEAD_BYTES:
        return TOO_LONG
    hosts = [value for name, value in headers if name == b"host"]
    if len(hosts) > 1 or (not hosts and version not in CHUNKLESS_VERSIONS):
        return NOT_ONE_HOST
    if hosts and not _HOST.fullmatch(hosts[0]):
        return BAD_HOST
    codings = [value.strip().lower() for name, value in headers if name == b"transfer-encoding"]
    return UNKNOWN_CODING if codings not in ([], [b"chunked"]) else None


def _without_upgrade(data: bytes) -> bytes:
    """The same bytes, but a header `upgrade` in the head that they begin with, or are a part of, has another name."""
    head, end, rest = data.partition(b"\r\n\r\n")
    return _UPGRADE.sub(b"x-not-upgraded", head) + end + rest
