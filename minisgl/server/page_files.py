"""The files of the page at `/`, as ui/ builds them, read once and kept packed as browsers want them."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "ui"
INDEX = "index.html"
MEDIA_TYPES = {
    "index.html": "text/html; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "app.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "licenses.txt": "text/plain; charset=utf-8",
}
# Their addresses. They hold no data, so they are open to whoever has no key yet: it is the page that asks for it.
PATHS = frozenset({"/", *(f"/ui/{name}" for name in MEDIA_TYPES if name != INDEX)})


@dataclass(frozen=True)
class PageFile:
    """etag: of what it holds, quotes included."""

    media_type: str
    etag: str
    plain: bytes
    packed: bytes


@cache
def page_file(name: str) -> PageFile | None:
    """None if there is none of that name: only those of MEDIA_TYPES are ever looked for."""
    media_type = MEDIA_TYPES.get(name)
    if media_type is None:
        return None
    plain = (FOLDER / name).read_bytes()
    etag = f'"{hashlib.sha256(plain).hexdigest()[:24]}"'
    return PageFile(media_type, etag, plain, gzip.compress(plain, mtime=0))
