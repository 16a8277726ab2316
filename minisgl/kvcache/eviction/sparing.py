"""Look-ahead on top of any order: leaves that waiting requests are about to hit go last."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from minisgl.kvcache.eviction.lazy_heap import LazyHeap
from minisgl.kvcache.radix_node import RadixNode


class SparingHeap:
    """Unlocked leaves by `key` as in `LazyHeap`, but that leaves with num_expected > 0 go after all others.

    They are set aside in a second heap when they come up. So a leaf that is expected costs nothing until then.
    """

    def __init__(self, key: Callable[[RadixNode], int], number: int = 1) -> None:
        """number: the first of the two that the heaps take."""
        self._key = key
        self._aside = LazyHeap(number + 1, key)
        self._aside_number = number + 1
        self._heap = LazyHeap(number, key, self._aside)

    def file(self, node: RadixNode) -> None:
        self._heap.file(node)

    def first(self) -> RadixNode | None:
        return self._heap.first() or self._aside.first()

    def first_unexpected(self) -> RadixNode | None:
        return self._heap.first()

    def first_plain(self) -> RadixNode | None:
        """The first leaf if nothing were expected."""
        unexpected, expected = self._heap.first(), self._aside.first()
        if unexpected is None or expected is None:
            return unexpected or expected
        return min(unexpected, expected, key=self._key)

    def pop(self) -> RadixNode:
        node = self._heap.pop() or self._aside.pop()
        assert node is not None, "no unlocked leaf is queued for eviction"
        return node

    def unexpected(self, node: RadixNode) -> None:
        """`node` is not expected any more: bring it back if it was set aside."""
        if node.queued != self._aside_number:
            return
        if node.evictable:
            self._heap.file(node)
        else:
            node.queued = 0

    def clear(self) -> None:
        self._heap.clear()
        self._aside.clear()

    def check_integrity(self, nodes: Sequence[RadixNode]) -> None:
        self._heap.check_integrity(nodes)
        self._aside.check_integrity(nodes)
        unspared = [node for node in nodes if node.queued == self._aside_number and not node.num_expected]
        assert not unspared, f"set aside for waiting requests that do not exist: {unspared}"
