"""Things by numbers that may be changed."""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Generic, TypeVar

_FEW = 64  # entries that are not worth a sweep

T = TypeVar("T", bound=Hashable)


class Places(Generic[T]):
    """The owner of the smallest place first; of equal places, the one that got it first.

    Entries of places that were given up stay until they come up, or until they are more than the others.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, T]] = []  # place, number of the entry, owner
        self._entries: dict[T, tuple[int, int]] = {}
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, owner: object) -> bool:
        return owner in self._entries

    def enter(self, owner: T, place: int) -> None:
        """Give `owner` this place, instead of any that it has."""
        number = next(self._numbers)
        self._entries[owner] = place, number
        heappush(self._heap, (place, number, owner))
        if len(self._heap) > _FEW + 2 * len(self._entries):
            self._heap = [entry for entry in self._heap if self._entries.get(entry[2]) == entry[:2]]
            heapify(self._heap)

    def leave(self, owner: T) -> int:
        """Take the place of `owner`, which must have one, from it."""
        return self._entries.pop(owner)[0]

    def first(self) -> tuple[int, T] | None:
        while self._heap:
            place, number, owner = self._heap[0]
            if self._entries.get(owner) == (place, number):
                return place, owner
            heappop(self._heap)
        return None

    def move_first(self, place: int) -> None:
        """Give the one that `first` has just shown another place."""
        self.enter(heappop(self._heap)[2], place)

    def clear(self) -> None:
        self._heap.clear()
        self._entries.clear()
