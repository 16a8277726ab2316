"""The order of eviction: among unlocked leaves, the one not visited for longest goes first."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from minisgl.kvcache.radix_node import RadixNode


class LRUQueue:
    """Unlocked leaves by last access, kept from one eviction to the next; a push or a pop costs O(log leaves).

    It is lazy: nothing is done here when a leaf is visited, locked or grown upon. What its entry says is checked when
    it comes up, and the node is to be pushed again when it is unlocked or loses its last child. A node has at most
    one entry, whose time is never later than the node's own; so the first entry that is true is the oldest leaf.

    Nodes that were last visited at the same time lie on one path, and the lowest is taken out before the next one is a
    leaf: so no two entries have the same time, and times can be keys.
    """

    def __init__(self) -> None:
        self._times: list[int] = []
        self._nodes: dict[int, RadixNode] = {}

    def push(self, node: RadixNode) -> None:
        """Add `node` if it is an unlocked leaf; to be called whenever it may have become one."""
        if node.queued or node.ref_count or node.children:
            return
        time = node.last_access
        assert time not in self._nodes, f"{node} and {self._nodes[time]} are leaves of the same time"
        heappush(self._times, time)
        self._nodes[time] = node
        node.queued = True

    def pop(self) -> RadixNode:
        """Take out the unlocked leaf that was not visited for longest. There must be one."""
        while self._times:
            time = heappop(self._times)
            node = self._nodes.pop(time)
            node.queued = False
            if node.last_access == time and node.evictable:
                return node
            self.push(node)
        raise AssertionError("no unlocked leaf is queued for eviction")

    def clear(self) -> None:
        for node in self._nodes.values():
            node.queued = False
        self._times.clear()
        self._nodes.clear()

    def check_integrity(self, nodes: Iterable[RadixNode]) -> None:
        """AssertionError if an unlocked leaf of `nodes` (the whole tree) has no entry, or an entry is wrong."""
        assert sorted(self._times) == sorted(self._nodes), "the times in the eviction queue are not those of its nodes"
        entries = {node: time for time, node in self._nodes.items()}
        assert len(entries) == len(self._nodes), "a node is queued for eviction twice"
        for node in nodes:
            time = entries.pop(node, None)
            assert node.queued == (time is not None), f"{node}: queued={node.queued}, its entry says otherwise"
            assert node.queued or not node.evictable, f"{node}: an unlocked leaf that is not queued for eviction"
            assert time is None or time <= node.last_access, f"{node}: queued at {time}, later than its last access"
        assert not entries, f"queued for eviction, but not in the tree: {list(entries)}"
