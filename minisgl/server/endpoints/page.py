"""GET / and /ui/NAME: the page for people."""

from __future__ import annotations

import re

from starlette.requests import Request
from starlette.responses import Response

from minisgl.server.endpoints.common import state_of
from minisgl.server.errors import ApiError
from minisgl.server.page_files import INDEX, page_file

HEADERS = {
    # Nothing but our own files and the API, nothing written into the page, no page of others around it.
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # asked for again each time, and answered with 304: a new version is seen at once
    "Vary": "Accept-Encoding",
}


async def index(request: Request) -> Response:
    """The page itself. It works while the model loads."""
    return _file(request, INDEX)


async def ui_file(request: Request) -> Response:
    """What the page is made of."""
    return _file(request, request.path_params["name"])


def _file(request: Request, name: str) -> Response:
    if not state_of(request).config.ui:
        raise ApiError(404, "this server was started with --no-ui", code="not_found")
    file = page_file(name)
    if file is None or (name == INDEX) != (request.url.path == "/"):
        raise ApiError(404, f"the page has no file {name!r}", code="not_found")
    headers = HEADERS | {"ETag": file.etag}
    if file.etag in _etags(request):
        return Response(status_code=304, headers=headers)
    if _takes_gzip(request):
        return Response(file.packed, headers=headers | {"Content-Encoding": "gzip"}, media_type=file.media_type)
    return Response(file.plain, headers=headers, media_type=file.media_type)


def _takes_gzip(request: Request) -> bool:
    """Whether it is named, and not with a weight of 0."""
    for sent in request.headers.get("accept-encoding", "").split(","):
        name, _, weight = sent.partition(";")
        if name.strip().lower() == "gzip":
            return re.fullmatch(r"\s*q=0(\.0*)?\s*", weight) is None
    return False


def _etags(request: Request) -> set[str]:
    """Those that the browser has. A proxy that packs an answer makes its tag a weak one."""
    sent = request.headers.get("if-none-match", "").split(",")
    return {each.strip().removeprefix("W/") for each in sent}
