"""Where a running server is, as the user gave it."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Address:
    """Where a server is. path: what stands before every request's own path."""

    host: str
    port: int
    path: str
    is_secure: bool

    @classmethod
    def of(cls, url: str) -> Address:
        """ValueError for what is no http or https address."""
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"--url {url}: not an address like http://127.0.0.1:8000")
        is_secure = parts.scheme == "https"
        path = parts.path.rstrip("/").removesuffix("/v1")
        return cls(parts.hostname, parts.port or (443 if is_secure else 80), path, is_secure)

    def error(self, error: OSError) -> OSError:
        """The same, saying where."""
        return OSError(f"{self.host}:{self.port}: {error.strerror or error}; does a server run there?")
