"""How messages travel: an inbox that is received from and an outbox that is sent to, always in lists."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from minisgl.message.types import Reply, RequestMsg

T = TypeVar("T")


class Inbox(Protocol):
    def receive(self, timeout: float | None) -> list[RequestMsg]:
        """All that has arrived, in order. If that is nothing, waits for up to `timeout` seconds, or for ever (None)."""
        ...


class Outbox(Protocol):
    def send(self, replies: list[Reply]) -> None: ...


class LocalQueue(Generic[T]):
    """Both ends in one process; safe between threads."""

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._arrived = threading.Condition()

    def send(self, items: Iterable[T]) -> None:
        with self._arrived:
            self._items.extend(items)
            self._arrived.notify()

    def receive(self, timeout: float | None) -> list[T]:
        with self._arrived:
            self._arrived.wait_for(lambda: self._items, timeout)
            items = list(self._items)
            self._items.clear()
            return items
