"""The last word to whoever is still served when the server's time is up."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Receive, Scope, Send

from minisgl.server.gate import draining_error
from minisgl.server.responses import error_response


class CutShort:
    """503 for a request whose task is cancelled, as `HttpServer.cut` does to what has no answer yet.

    It may wait for a thread, say. What has begun to be answered has lost its connection by then: nothing is sent.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            await error_response(draining_error())(scope, receive, send)
