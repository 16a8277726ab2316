"""Look-ahead on top of any order: leaves that waiting requests are about to hit go last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from minisgl.kvcache.eviction.lazy_heap import LazyHeap
from minisgl.kvcache.eviction.places import Places
from minisgl.kvcache.radix_node import RadixNode


class SparingHeap:
    """Unlocked leaves by `key` as in `LazyHeap`, but that leaves at which somebody is expected go after all others.

    They are set aside in a second heap when they come up, where the one that is needed last goes first. So a leaf that
    is expected costs nothing until then.

    A leaf that goes in the stead of one that was set aside leaves it its place, as `first_place` tells it: so a
    namespace gives a leaf whenever the plain order says so, and not again and again for one that it spares.
    """

    def __init__(self, key: Callable[[RadixNode], int], number: int = 1) -> None:
        """number: the first of the two that the heaps take."""
        self._key = key
        self._places: Places[RadixNode] = Places()
        self._aside_number = number + 1
        self._aside = LazyHeap(number + 1, needed_last)
        # Not a method: a queue goes with its namespace, and must not wait for a search for cycles.
        self._heap = LazyHeap(number, key, partial(_set_aside, self._aside, self._places, key))

    def file(self, node: RadixNode) -> None:
        self._heap.file(node)

    def first(self) -> RadixNode | None:
        return self._heap.first() or self._aside.first()

    def first_unexpected(self) -> RadixNode | None:
        return self._heap.first()

    def first_place(self) -> int | None:
        """The key of the leaf that would go next if nothing had ever been expected."""
        node = self._heap.first()
        spared = self._first_spared()
        if node is None or spared is None:
            return spared if node is None else self._key(node)
        return min(self._key(node), spared)

    def take_out(self, leaf: RadixNode) -> int:
        """Take out `leaf`, which `first` or `first_unexpected` has just shown; the place that it leaves."""
        place = self._key(leaf)
        if leaf.queued == self._aside_number:
            self._aside.take_first()
            place = max(place, self._places.leave(leaf))
        else:
            self._heap.take_first()
        return place

    def pass_on(self, place: int) -> None:
        """A leaf with this place went. If it went in the stead of the first spared one, that one gets the place."""
        if self._places and (spared := self._first_spared()) is not None and spared < place:
            self._places.move_first(place)

    def expected_later(self, node: RadixNode) -> None:
        """Fewer are expected at `node`: if it was set aside, bring it back, or file it by who is first now."""
        if node.queued != self._aside_number:
            return
        if node.evictable and node.expected:
            self._aside.file(node)
            return
        self._places.leave(node)
        if node.evictable:
            self._heap.file(node)
        else:
            node.queued = 0

    def clear(self) -> None:
        self._heap.clear()
        self._aside.clear()
        self._places.clear()

    def check_integrity(self, nodes: Sequence[RadixNode]) -> None:
        self._heap.check_integrity(nodes)
        self._aside.check_integrity(nodes)
        for node in nodes:
            if node.queued == self._aside_number:
                assert node.expected, f"{node} is set aside for a waiting request that does not exist"
                assert node in self._places, f"{node} is set aside and has no place"

    def _first_spared(self) -> int | None:
        """The first place of a leaf set aside."""
        while (first := self._places.first()) is not None:
            place, node = first
            if node.queued != self._aside_number:
                self._places.leave(node)
            elif not node.evictable:
                node.queued = 0
            elif place < self._key(node):
                self._places.move_first(self._key(node))
            else:
                return place
        return None


def _set_aside(aside: LazyHeap, places: Places[RadixNode], key: Callable[[RadixNode], int], node: RadixNode) -> None:
    aside.file(node)
    places.enter(node, key(node))


def needed_last(node: RadixNode) -> int:
    """A key by which, of expected leaves, the one whose first request comes last is the smallest."""
    return -node.expected[0] if node.expected else 0
