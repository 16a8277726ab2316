"""GET /openapi.json and /docs."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from minisgl.server.docs_page import page
from minisgl.server.endpoints.common import json_response
from minisgl.server.openapi import document


async def openapi_json(request: Request) -> Response:
    """This API, as an OpenAPI 3.1 document."""
    return json_response(document())


async def docs(request: Request) -> Response:
    """The same for people."""
    return HTMLResponse(page())
