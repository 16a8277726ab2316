"""Server-sent events (WHATWG's text/event-stream), and events of which only a text changes."""

from __future__ import annotations

from typing import Any

import msgspec

from minisgl.server.errors import ApiError

DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"  # a comment, which readers of events pass over
_MARK = "\x00mark\x00"
encode = msgspec.json.encode
_ENCODED_MARK = encode(_MARK)


def ready(value: Any) -> Any:
    """The same in JSON already, as a part of something that is encoded later, and maybe often.

    What is large is made of such parts: a single call that encodes all of it would keep every other thread waiting.
    """
    return msgspec.Raw(encode(value))


def event(data: Any) -> bytes:
    """One event with this JSON."""
    return b"data: " + encode(data) + b"\n\n"


def error_event(error: ApiError) -> bytes:
    """The last event of a stream that broke: clients raise it."""
    return b"data: " + error.encode() + b"\n\n"


class TextEvent:
    """Events that are alike but for one string: what is around it is encoded once, since tokens come by thousands."""

    MARK = _MARK  # to be put where the text belongs

    def __init__(self, marked: Any) -> None:
        self._head, self._tail = event(marked).split(_ENCODED_MARK)

    def __call__(self, text: str) -> bytes:
        return self._head + encode(text) + self._tail
