"""mru: the leaf that was visited last goes first."""

from __future__ import annotations

from typing import ClassVar

from minisgl.kvcache.eviction.keyed import KeyedQueue
from minisgl.kvcache.radix_node import RadixNode


class MRUQueue(KeyedQueue):
    """Most recently used. Right where the same things come round and round and do not all fit; see docs/eviction.md.

    The key of a leaf gets smaller when it is visited, so it is filed again at once. That is one leaf for each match or
    insertion, the one that it ends in; the heap sweeps the older entries out.
    """

    takes_notes: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__(lambda node: -node.last_access)

    def push(self, node: RadixNode) -> None:
        if node.evictable:  # a node that was visited while it was locked has an entry that is too late
            self._heap.file(node)
            self._changed()

    def matched(self, node: RadixNode) -> None:
        self.push(node)

    def inserted(self, node: RadixNode, is_new: bool, priority: int) -> None:
        self.push(node)
