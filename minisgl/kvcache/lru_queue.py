"""The order of eviction: among unlocked leaves, the one not visited for longest goes first."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush, heapreplace

from minisgl.kvcache.radix_node import RadixNode


class LRUQueue:
    """Unlocked leaves by last access, kept from one eviction to the next; a push or a pop costs O(log leaves).

    It is lazy: nothing is done here when a leaf is visited, locked or grown upon. What its entry says is checked when
    it comes up, and the node may have to be pushed again when it is unlocked or loses its last child. A node has at
    most one entry, whose time is never later than the node's own; so the first entry that is true is the oldest leaf.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, RadixNode]] = []
        self._num_pushed = 0

    def push(self, node: RadixNode) -> None:
        """Add `node` if it is an unlocked leaf; to be called whenever it may have become one."""
        if node.queued or node.ref_count or node.children:
            return
        node.queued = True
        self._num_pushed += 1  # decides between equal times, of which one at most is true
        heappush(self._heap, (node.last_access, self._num_pushed, node))

    def pop(self) -> RadixNode:
        """Take out the unlocked leaf that was not visited for longest. There must be one."""
        heap = self._heap
        while heap:
            time, order, node = heap[0]
            if node.ref_count or node.children:
                heappop(heap)
                node.queued = False
            elif node.last_access != time:
                heapreplace(heap, (node.last_access, order, node))
            else:
                heappop(heap)
                node.queued = False
                return node
        raise AssertionError("no unlocked leaf is queued for eviction")

    def clear(self) -> None:
        self._heap.clear()

    def check_integrity(self, nodes: Iterable[RadixNode]) -> None:
        """AssertionError if an unlocked leaf of `nodes` (the whole tree) has no entry, or an entry is wrong."""
        entries = {node: time for time, _, node in self._heap}
        assert len(entries) == len(self._heap), "a node is queued for eviction twice"
        for node in nodes:
            time = entries.pop(node, None)
            assert node.queued == (time is not None), f"{node}: queued={node.queued}, its entry says otherwise"
            assert node.queued or not node.evictable, f"{node}: an unlocked leaf that is not queued for eviction"
            assert time is None or time <= node.last_access, f"{node}: queued at {time}, later than its last access"
        assert not entries, f"queued for eviction, but not in the tree: {list(entries)}"
