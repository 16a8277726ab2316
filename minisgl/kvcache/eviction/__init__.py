"""Which unlocked leaf of the radix tree goes when memory is needed: policies behind one small interface."""

from __future__ import annotations

from collections.abc import Callable

from minisgl.kvcache.eviction.lru import LRUQueue
from minisgl.kvcache.eviction.queue import EvictionQueue
from minisgl.utils.registry import Registry

EVICTION_POLICIES: Registry[Callable[[], EvictionQueue]] = Registry("eviction policy")
EVICTION_POLICIES.register("lru")(LRUQueue)

__all__ = ["EVICTION_POLICIES", "EvictionQueue"]
