"""Which unlocked leaf of the radix tree goes when memory is needed: policies behind one small interface."""

from __future__ import annotations

from collections.abc import Callable

from minisgl.kvcache.eviction.arc import ARCQueue
from minisgl.kvcache.eviction.fifo import FIFOQueue
from minisgl.kvcache.eviction.lfu import LFUQueue, SLRUQueue
from minisgl.kvcache.eviction.lru import LRUQueue
from minisgl.kvcache.eviction.mru import MRUQueue
from minisgl.kvcache.eviction.priority import PriorityQueue
from minisgl.kvcache.eviction.queue import EvictionQueue
from minisgl.kvcache.eviction.turns import Turns
from minisgl.utils.registry import Registry

EVICTION_POLICIES: Registry[Callable[[], EvictionQueue]] = Registry("eviction policy")
EVICTION_POLICIES.register("lru")(LRUQueue)
EVICTION_POLICIES.register("lfu")(LFUQueue)
EVICTION_POLICIES.register("fifo")(FIFOQueue)
EVICTION_POLICIES.register("mru")(MRUQueue)
EVICTION_POLICIES.register("slru")(SLRUQueue)
EVICTION_POLICIES.register("arc")(ARCQueue)
EVICTION_POLICIES.register("priority")(PriorityQueue)

__all__ = ["EVICTION_POLICIES", "EvictionQueue", "Turns"]
