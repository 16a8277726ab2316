"""lfu and slru: leaves that were hit rarely go first."""

from __future__ import annotations

from typing import ClassVar

from minisgl.kvcache.eviction.keyed import TIME_BITS, KeyedQueue
from minisgl.kvcache.radix_node import RadixNode

_HITS_OF_PROTECTED = 2


class HitCountingQueue(KeyedQueue):
    """A node's note counts its hits: matches that led through it.

    Insertions do not count, for a request inserts what it has just matched. Hits are never forgotten while the node
    lives, and start from 0 when evicted tokens come back.
    """

    takes_notes: ClassVar[bool] = True

    def matched(self, node: RadixNode) -> None:
        while node.parent is not None:
            node.note += 1
            node = node.parent


class LFUQueue(HitCountingQueue):
    """Least frequently used: the leaf with the fewest hits first; of equally many, the least recently visited."""

    def __init__(self) -> None:
        super().__init__(lambda node: node.note << TIME_BITS | node.last_access)


class SLRUQueue(HitCountingQueue):
    """Segmented LRU, as SGLang's: leaves hit less than twice (on probation) go first; in each segment LRU.

    The protected segment has no cap: what was hit twice stays until nothing on probation is left. Source: SLRUStrategy
    of SGLang's evict_policy.py. (Karedla, Love and Wherry, "Caching strategies to improve disk system performance",
    1994, cap it, and put what falls out of it back on probation.)
    """

    def __init__(self) -> None:
        super().__init__(lambda node: (node.note >= _HITS_OF_PROTECTED) << TIME_BITS | node.last_access)
