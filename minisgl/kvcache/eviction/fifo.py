"""fifo: the leaf that was inserted first goes first."""

from __future__ import annotations

from operator import attrgetter
from typing import ClassVar

from minisgl.kvcache.eviction.keyed import KeyedQueue
from minisgl.kvcache.radix_node import RadixNode


class FIFOQueue(KeyedQueue):
    """First in, first out. A node's note is the clock when it was inserted; visits do not matter.

    What was inserted at once lies on one path, as it does in LRU, so births can be keys.
    """

    takes_notes: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__(attrgetter("note"))

    def inserted(self, node: RadixNode, is_new: bool, priority: int) -> None:
        if is_new:
            node.note = node.last_access
