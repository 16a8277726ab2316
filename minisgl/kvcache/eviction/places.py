"""Nodes by numbers that may be changed."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count

from minisgl.kvcache.radix_node import RadixNode

_FEW = 64  # entries that are not worth a sweep


class Places:
    """The node with the smallest place first; of equal places, the one that got it first.

    Entries of places that were given up stay until they come up, or until they are more than the others.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, RadixNode]] = []  # place, number of the entry, node
        self._entries: dict[RadixNode, tuple[int, int]] = {}
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, node: object) -> bool:
        return node in self._entries

    def enter(self, node: RadixNode, place: int) -> None:
        """Give `node` this place, instead of any that it has."""
        number = next(self._numbers)
        self._entries[node] = place, number
        heappush(self._heap, (place, number, node))
        if len(self._heap) > _FEW + 2 * len(self._entries):
            self._heap = [entry for entry in self._heap if self._entries.get(entry[2]) == entry[:2]]
            heapify(self._heap)

    def leave(self, node: RadixNode) -> int:
        """Take the place of `node`, which must have one, from it."""
        return self._entries.pop(node)[0]

    def first(self) -> tuple[int, RadixNode] | None:
        while self._heap:
            place, number, node = self._heap[0]
            if self._entries.get(node) == (place, number):
                return place, node
            heappop(self._heap)
        return None

    def move_first(self, place: int) -> None:
        """Give the node that `first` has just shown another place."""
        self.enter(heappop(self._heap)[2], place)

    def clear(self) -> None:
        self._heap.clear()
        self._entries.clear()
