"""Which of many namespaces gives the next leaf."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import Generic, TypeVar

from minisgl.kvcache.eviction.places import Places
from minisgl.kvcache.eviction.queue import EvictionQueue

T = TypeVar("T", bound=Hashable)

_MANY = 64  # that were touched, and would be a pause if all of them were looked up at once


class Turns(Generic[T]):
    """The owner of the eviction queue with the smallest `order_key`, found in O(log owners).

    Places are keys as they were. One that has become too large was touched since, and is looked up again before any
    choice; one that has become too small is found out when it comes up.
    """

    def __init__(self) -> None:
        self._queues: dict[T, EvictionQueue] = {}
        self._places: Places[T] = Places()
        self._touched: dict[T, None] = {}

    def add(self, owner: T, queue: EvictionQueue) -> None:
        self._queues[owner] = queue
        self._touch(owner)
        queue.on_change = partial(self._touch, owner)

    def remove(self, owner: T) -> None:
        self._queues.pop(owner).on_change = None
        self._touched.pop(owner, None)
        if owner in self._places:
            self._places.leave(owner)

    def next(self) -> T | None:
        """Whose leaf goes next; None if none of them has an unlocked one."""
        for owner in self._touched:
            self._look_up(owner)
        self._touched.clear()
        while (first := self._places.first()) is not None:
            place, owner = first
            if self._queues[owner].order_key() == place:
                return owner
            self._look_up(owner)
        return None

    def _touch(self, owner: T) -> None:
        """Once many are noted, look up the first: another one, whose queue is not about to change."""
        self._touched[owner] = None
        if len(self._touched) > _MANY:
            first = next(iter(self._touched))
            del self._touched[first]
            self._look_up(first)

    def _look_up(self, owner: T) -> None:
        key = self._queues[owner].order_key()
        if key is not None:
            self._places.enter(owner, key)
        elif owner in self._places:
            self._places.leave(owner)
