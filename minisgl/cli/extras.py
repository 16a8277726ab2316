"""Packages that only some installations have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

SERVER_EXTRA = frozenset({"httptools", "prometheus_client", "starlette", "uvicorn", "uvloop", "zmq"})


@contextmanager
def needs_server_extra(what: str) -> Iterator[None]:
    """For a block of imports: one that fails for want of the extra `server` is a ValueError that says so."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in SERVER_EXTRA:
            raise
        raise ValueError(
            f"{what} needs the extra `server`: pip install 'minisgl[server]' ({package} is missing)"
        ) from error
