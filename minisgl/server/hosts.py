"""Names by which a server without a key may be called."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from minisgl.server.config import ServerConfig
from minisgl.server.errors import ApiError
from minisgl.server.middleware import header
from minisgl.server.responses import error_response

OPEN_PATHS = frozenset({"/health"})  # a word, for probes
WATCHED = "/inspect/"
_LABEL = re.compile(r"[a-z0-9_-]+")


class KnownHosts:
    """403 for a request to a name that is neither this machine's nor among --allowed-hosts and --cors-origin.

    A server that only this machine reaches is safe without a key as long as browsers keep foreign pages from its
    answers. They judge by names, and whoever owns a name may point it at 127.0.0.1 (DNS rebinding). A number cannot be
    pointed elsewhere, nobody can own a name without a dot in the public DNS (/inspect is stricter), and no browser
    sends no name.
    """

    def __init__(self, app: ASGIApp, config: ServerConfig) -> None:
        self._app = app
        self._allowed = {_host_of(f"//{name}") for name in (config.host, *config.allowed_hosts)}
        self._allowed |= {_host_of(origin) for origin in config.cors_origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        address = (header(scope, b"host") or b"").decode("latin-1")
        if scope["path"] in OPEN_PATHS or self._knows(address, scope["path"]):
            await self._app(scope, receive, send)
            return
        name = _host_of(f"//{address}")
        message = (
            f"this server does not answer to the name {name!r}: allow it with --allowed-hosts {name}, or set an API key"
        )
        await error_response(ApiError(403, message, code="foreign_host"))(scope, receive, send)

    def _knows(self, address: str, path: str) -> bool:
        host = _host_of(f"//{address}")
        if not address or host in self._allowed or _is_this_machine(host) or _is_number(host):
            return True
        return _LABEL.fullmatch(host) is not None and not path.startswith(WATCHED)


def are_checked(config: ServerConfig) -> bool:
    """Whether names count: not with a key, and at an address that others reach only if some are allowed by name."""
    if config.api_key is not None or "*" in (*config.cors_origins, *config.allowed_hosts):
        return False
    return bool(config.allowed_hosts) or _is_this_machine(config.host)


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
