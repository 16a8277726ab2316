"""The socket that the server listens on, taken before anything is loaded."""

from __future__ import annotations

import errno
import ipaddress
import socket

BACKLOG = 2048


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; :: also takes IPv4 where the system can. ValueError, naming the port, when it is in use."""
    _check_host(host)
    is_v6 = ":" in host
    try:
        return socket.create_server(
            (host, port),
            family=socket.AF_INET6 if is_v6 else socket.AF_INET,
            backlog=BACKLOG,
            dualstack_ipv6=host == "::" and socket.has_dualstack_ipv6(),
        )
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ValueError(f"port {port} on {host} is in use; --port takes another one") from error
        raise ValueError(f"cannot listen on {host}, port {port}: {error.strerror or error}") from error


def _check_host(host: str) -> None:
    """ValueError for what no host can be called; the system's call would leave its socket open."""
    try:
        host.encode("idna")
    except UnicodeError as error:
        raise ValueError(f"cannot listen on {host!r}: no host has such a name") from error


def is_private(listener: socket.socket) -> bool:
    """Whether only this machine can reach it."""
    return ipaddress.ip_address(listener.getsockname()[0]).is_loopback


def address_of(listener: socket.socket) -> str:
    """Where a browser on this machine finds it: http://127.0.0.1:8000."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
