"""priority: what only unimportant requests use goes first."""

from __future__ import annotations

from typing import ClassVar

from minisgl.kvcache.eviction.keyed import TIME_BITS, KeyedQueue
from minisgl.kvcache.radix_node import RadixNode


class PriorityQueue(KeyedQueue):
    """The leaf of the lowest priority first; of equal priorities, the least recently visited.

    A node's note is its priority: the highest among the requests that inserted it or something that begins with it.
    (A request that matches a prefix inserts what begins with it when it is computed.) It is never lowered.
    """

    takes_notes: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__(lambda node: (node.note << TIME_BITS) + node.last_access)

    def inserted(self, node: RadixNode, is_new: bool, priority: int) -> None:
        if is_new:
            node.note = priority
            assert node.parent is not None, "a new leaf has a parent"
            node = node.parent
        while node.parent is not None and node.note < priority:  # those above are as high at least
            node.note = priority
            node = node.parent
