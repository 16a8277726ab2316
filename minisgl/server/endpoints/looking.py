"""Who may look at an engine at work."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from starlette.requests import Request

from minisgl.server.config import ServerConfig
from minisgl.server.endpoints.common import state_of
from minisgl.server.errors import ApiError
from minisgl.server.state import ServerState


def state_to_look_at(request: Request) -> ServerState:
    """With an engine. ApiError 503 while there is none, and 403 for a page whose name was made to mean this machine.

    A server that only this machine reaches is safe without a key as long as browsers keep foreign pages from its
    answers. They judge by names, and whoever owns a name may point it at 127.0.0.1 (DNS rebinding). So a name that is
    neither this machine's nor in --cors-origin is none of ours.
    """
    state = state_of(request)
    if _is_guarded_by_names(state.config) and not _is_ours(request.headers.get("host", ""), state.config):
        raise ApiError(403, "pages of this name may not look at the engine; see --cors-origin", code="foreign_host")
    state.ready_engine()
    return state


def _is_guarded_by_names(config: ServerConfig) -> bool:
    return config.api_key is None and _is_this_machine(config.host) and "*" not in config.cors_origins


def _is_ours(address: str, config: ServerConfig) -> bool:
    """address: as a browser sends it, with its port. A number cannot be pointed elsewhere; no browser sends nothing."""
    host = _host_of(f"//{address}")
    allowed = {_host_of(origin) for origin in config.cors_origins}
    return not address or host in allowed or _is_this_machine(host) or _is_number(host)


def _is_this_machine(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    return _is_number(host) and ipaddress.ip_address(host).is_loopback


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _host_of(url: str) -> str:
    """In lower case; what is no address stays a name that nobody has."""
    try:
        return (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return url
