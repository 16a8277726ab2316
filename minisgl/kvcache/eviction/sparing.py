"""Look-ahead on top of any order: leaves that waiting requests are about to hit go last."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from minisgl.kvcache.eviction.lazy_heap import LazyHeap
from minisgl.kvcache.radix_node import RadixNode


class SparingHeap:
    """A `LazyHeap` whose leaves with num_expected > 0 are set aside in a second one when they come up.

    So a leaf that is expected costs nothing until then, and one that never comes up costs nothing at all.
    """

    def __init__(self, number: int, key: Callable[[RadixNode], int]) -> None:
        """number: the first of the two that the heaps take."""
        self._key = key
        self._plain = LazyHeap(number, key)
        self._spared = LazyHeap(number + 1, key)
        self._spared_number = number + 1

    def file(self, node: RadixNode) -> None:
        self._plain.file(node)

    def first_unexpected(self) -> RadixNode | None:
        """The first leaf that no waiting request is about to hit."""
        while (node := self._plain.first()) is not None and node.num_expected:
            self._spared.file(node)
        return node

    def first(self) -> RadixNode | None:
        """The first leaf in plain order, look-ahead ignored."""
        plain, spared = self._plain.first(), self._spared.first()
        if plain is None or spared is None:
            return plain or spared
        return min(plain, spared, key=self._key)

    def take(self, node: RadixNode) -> None:
        """Take out `node`, which one of the two has just shown."""
        (self._spared if node.queued == self._spared_number else self._plain).take_first()

    def unexpected(self, node: RadixNode) -> None:
        """Bring `node` back from those set aside, if it is one of them."""
        if node.queued != self._spared_number:
            return
        if node.evictable:
            self._plain.file(node)
        else:
            node.queued = 0

    def clear(self) -> None:
        self._plain.clear()
        self._spared.clear()

    def check_integrity(self, nodes: Iterable[RadixNode]) -> None:
        nodes = list(nodes)
        self._plain.check_integrity(nodes)
        self._spared.check_integrity(nodes)
        unspared = [node for node in nodes if node.queued == self._spared_number and not node.num_expected]
        assert not unspared, f"set aside for waiting requests that do not exist: {unspared}"
