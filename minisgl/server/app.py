"""The ASGI application: all routes, what every request passes on its way, and errors in OpenAI's form."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from minisgl.server.config import ServerConfig
from minisgl.server.cut_short import CutShort
from minisgl.server.endpoints import ROUTES
from minisgl.server.errors import ApiError
from minisgl.server.explaining import CACHE_HEADER, EVICTED_HEADER
from minisgl.server.hosts import KnownHosts, are_checked
from minisgl.server.middleware import AnswerLimit, ApiKey, BodyLimit, Guard, Recorder
from minisgl.server.operations import PROBE_ROUTES
from minisgl.server.responses import answer_api_error, answer_http_exception
from minisgl.server.state import ServerState

# To a page of another origin.
SHOWN_HEADERS = ("x-request-id", "x-client-request-id", "retry-after", CACHE_HEADER, EVICTED_HEADER)


def build_app(state: ServerState) -> Starlette:
    """Routes find `state` as `request.app.state.server`; replacing it there is how the server changes."""
    app = Starlette(
        routes=[*PROBE_ROUTES, *ROUTES],
        middleware=_middleware(state),
        exception_handlers={ApiError: answer_api_error, HTTPException: answer_http_exception},
    )
    app.router.redirect_slashes = False  # a redirected POST loses its body in many clients
    app.state.server = state
    return app


def _middleware(state: ServerState) -> list[Middleware]:
    """From the outside in. A refusal can be read by a page of another origin too, so CORS stands before the key."""
    config = state.config
    layers = [Middleware(Recorder, state.book)]
    if config.cors_origins:
        layers.append(_cors(config))
    layers += [Middleware(Guard), Middleware(CutShort)]
    if are_checked(config):
        layers.append(Middleware(KnownHosts, config))
    if config.api_key is not None:
        layers.append(Middleware(ApiKey, config.api_key))
    return [*layers, Middleware(AnswerLimit, state.answers), Middleware(BodyLimit, config.max_body_bytes)]


def _cors(config: ServerConfig) -> Middleware:
    return Middleware(
        CORSMiddleware,
        allow_origins=list(config.cors_origins),
        allow_methods=["GET", "POST"],
        allow_headers=["*"],
        expose_headers=SHOWN_HEADERS,
    )
