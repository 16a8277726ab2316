"""GET /health and /metrics, which probes and Prometheus ask without a key."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from minisgl.llm import EngineDied
from minisgl.message import EngineStats
from minisgl.server.errors import ApiError
from minisgl.server.exposition import expose
from minisgl.server.state import ServerState

ENGINE_TIMEOUT_S = 2.0  # a step on a CPU may take that long, and a scrape must not wait for ever


async def health(request: Request) -> Response:
    """200 when requests are served, else 503; {"status": "ok" | "loading" | "draining" | "dead"}."""
    state: ServerState = request.app.state.server
    status = state.health()
    code = HTTPStatus.OK if status == "ok" else HTTPStatus.SERVICE_UNAVAILABLE
    return JSONResponse({"status": status}, code)


async def metrics(request: Request) -> Response:
    """Prometheus's text, or OpenMetrics if it is asked for. 404 when --no-metrics."""
    state: ServerState = request.app.state.server
    if not state.config.metrics:
        raise ApiError(404, "this server was started with --no-metrics", code="not_found")
    text, media_type = expose(state, await _engine_stats(state), request.headers.get("accept", ""))
    return Response(text, media_type=media_type)


async def _engine_stats(state: ServerState) -> EngineStats | None:
    """None when the engine is not there, or does not answer in time."""
    if state.engine is None:
        return None
    try:
        async with asyncio.timeout(ENGINE_TIMEOUT_S):
            return await state.engine.stats()
    except (TimeoutError, EngineDied):
        return None


PROBE_ROUTES = [Route("/health", health), Route("/metrics", metrics)]
