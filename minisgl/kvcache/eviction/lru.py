"""lru: the leaf that was not visited for longest goes first."""

from __future__ import annotations

from operator import attrgetter

from minisgl.kvcache.eviction.keyed import KeyedQueue


class LRUQueue(KeyedQueue):
    """Least recently used, by the cache's clock. A visit costs nothing.

    Nodes that were last visited at the same time lie on one path, and the lowest is taken out before the next one is a
    leaf: so no two leaves have the same time, and times can be keys.
    """

    def __init__(self) -> None:
        super().__init__(attrgetter("last_access"))
