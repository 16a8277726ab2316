"""POST /flush_cache and /abort_request."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from minisgl.server.endpoints.common import ANSWER_TIMEOUT_S, engine_answers, json_response, read_body, state_of
from minisgl.server.errors import ApiError
from minisgl.server.schema.control import AbortRequest
from minisgl.server.schema.info import Aborted, Flushed


async def flush_cache(request: Request) -> Response:
    """Nothing that is cached now is used for a later request; those that run keep what they have.

    503 when the engine does not answer within 10 seconds; it may do it later.
    """
    _refuse_foreign_page(request)
    async with engine_answers(ANSWER_TIMEOUT_S):
        await state_of(request).ready_engine().flush_cache()
    return json_response(Flushed())


async def abort_request(request: Request) -> Response:
    """Ends requests that run or wait, each with an error. No such request is no error: it may just have ended."""
    _refuse_foreign_page(request)
    body = await read_body(request, AbortRequest)
    running = state_of(request).running
    num = running.abort_all() if body.abort_all else running.abort(body.rid or "")
    return json_response(Aborted(num))


def _refuse_foreign_page(request: Request) -> None:
    """ApiError 403 for what a browser sends for a page, unless --cors-origin names it. Only browsers send an Origin.

    A page may send a POST without a body anywhere without asking first, so also to a server on its reader's machine.
    """
    origin, allowed = request.headers.get("origin"), state_of(request).config.cors_origins
    if origin is not None and origin not in allowed and "*" not in allowed:
        raise ApiError(403, "pages of this origin may not control the server; see --cors-origin", code="foreign_origin")
