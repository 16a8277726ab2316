"""The server's state and application without an engine process, and a client that asks it in this one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.routing import BaseRoute

from minisgl.server.access_log import log_request
from minisgl.server.app import build_app
from minisgl.server.config import ServerConfig
from minisgl.server.gate import Gate
from minisgl.server.metrics import Metrics
from minisgl.server.records import RequestBook
from minisgl.server.state import ServerState


def make_state(config: ServerConfig | None = None, **changes: Any) -> ServerState:
    """A server that still loads, unless `engine` is among the changes."""
    config = config or ServerConfig()
    metrics = Metrics()
    fields: dict[str, Any] = {
        "config": config,
        "model_name": "a-model",
        "gate": Gate(max_running=4, max_queued=config.max_queued),
        "metrics": metrics,
        "book": RequestBook([metrics.count, log_request]),
    }
    return ServerState(**{**fields, **changes})


def make_app(state: ServerState | None = None, routes: Sequence[BaseRoute] = ()) -> Starlette:
    """The whole application, with these routes before its own."""
    app = build_app(state or make_state())
    app.router.routes[:0] = routes
    return app


def ask(app: Starlette, method: str, path: str, **request: Any) -> httpx.Response:
    """One request, its response whole."""

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=True)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path, **request)

    return asyncio.run(send())
