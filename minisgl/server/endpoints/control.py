"""POST /abort_request."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from minisgl.server.endpoints.common import json_response, read_body, refuse_foreign_page, state_of
from minisgl.server.schema.control import AbortRequest
from minisgl.server.schema.info import Aborted


async def abort_request(request: Request) -> Response:
    """Ends requests that run or wait, each with an error. No such request is no error: it may just have ended."""
    refuse_foreign_page(request)
    body = await read_body(request, AbortRequest)
    running = state_of(request).running
    num = running.abort_all() if body.abort_all else running.abort(body.rid or "")
    return json_response(Aborted(num))
