"""Which reader gets which reply."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from minisgl.message import TokenReply

Sink = Callable[[TokenReply], None]


class Router:
    """uid -> sink. An outbox for the loop; safe between threads. Replies that nobody waits for are dropped."""

    def __init__(self) -> None:
        self._sinks: dict[int, Sink] = {}
        self._lock = threading.RLock()  # a collection under it may close a forgotten stream, which comes back here
        self._closed: str | None = None

    def register(self, uids: Iterable[int], sink: Sink) -> None:
        """Send replies for `uids` to `sink`, until the one with a finish reason. RuntimeError once closed."""
        with self._lock:
            if self._closed is not None:
                raise RuntimeError(self._closed)
            self._sinks.update((uid, sink) for uid in uids)

    def forget(self, uid: int) -> None:
        with self._lock:
            self._sinks.pop(uid, None)

    def send(self, replies: list[TokenReply]) -> None:
        for reply in replies:
            with self._lock:
                over = reply.finish_reason is not None
                sink = self._sinks.pop(reply.uid, None) if over else self._sinks.get(reply.uid)
            if sink is not None:
                sink(reply)

    def close(self, reason: str) -> None:
        """Answer everything that is open with an error, and refuse what comes. The first reason stays."""
        with self._lock:
            self._closed = self._closed or reason
            open_uids = list(self._sinks)
        self.send([TokenReply(uid, finish_reason="error", error=reason) for uid in open_uids])
