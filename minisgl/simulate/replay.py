"""Requests one after another through the real radix tree: what an eviction policy hits, without clock or scheduler."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
import torch

from minisgl.kvcache import RadixPrefixCache
from minisgl.kvcache.base import BasePrefixCache
from minisgl.kvcache.capacity_curve import CapacityCurve
from minisgl.kvcache.types import Watch
from minisgl.scheduler.page_allocator import PageAllocator
from minisgl.simulate.counts import HitCounts
from minisgl.simulate.workload import Item, Workload
from minisgl.utils.arrays import Int32Array

_ALL = 1 << 60  # more watches than there are


def replay(
    workload: Workload,
    num_pages: int,
    eviction: str = "lru",
    lookahead: int = 0,
    progress: Callable[[], None] = lambda: None,
    curve: CapacityCurve | None = None,
) -> HitCounts:
    """Match, lock, evict as needed, insert and unlock each request in order of arrival.

    lookahead: so many of the requests that come next are expected, so that what they would hit is evicted last.
    progress: called after each request. curve: follows them. ValueError if a request does not fit into num_pages.
    """
    check_pool(workload, num_pages)
    cache = RadixPrefixCache(torch.device("cpu"), workload.units_per_page, eviction)
    window = Lookahead(cache, workload, lookahead)
    free = PageAllocator(num_pages)
    counts = HitCounts()
    for item in workload.items:
        window.advance()
        num_hit = _serve(cache, free, item, counts)
        counts.add(item, num_hit)
        if curve is not None:
            ids = item.known_ids()
            curve.looked_up(ids[: item.num_prompt], num_hit)
            curve.stored(ids)
        progress()
    return counts


def check_pool(workload: Workload, num_pages: int) -> None:
    """ValueError if a request of the workload can never run in a pool of num_pages."""
    if num_pages < workload.longest:
        raise ValueError(f"pages={num_pages}, but the largest request of {workload.name} needs {workload.longest}")


class Lookahead:
    """The requests that come next wait in the tree, as they would in a scheduler's queue."""

    def __init__(self, cache: BasePrefixCache, workload: Workload, width: int) -> None:
        self._cache = cache
        self._coming = iter(workload.items)
        self._window: deque[Watch | None] = deque()
        self._is_on = width > 0
        for _ in range(width):
            self._extend()

    def advance(self) -> None:
        """The first request of the window is served now, and another one comes into sight."""
        if not self._is_on:
            return
        if (watch := self._window.popleft()) is not None:
            self._cache.unwatch(watch)
        self._extend()
        self._cache.advance_watches(_ALL)

    def _extend(self) -> None:
        """Nothing, once the trace is at its end."""
        item = next(self._coming, None)
        watch = self._cache.watch(item.ids()) if item else None
        if watch is not None:
            self._cache.expect(watch, True)
        self._window.append(watch)


def _serve(cache: BasePrefixCache, free: PageAllocator, item: Item, counts: HitCounts) -> int:
    """Units of the prompt that were cached."""
    ids, size = item.known_ids(), cache.page_size
    handle = cache.match_prefix(ids).cuda_handle
    cache.lock_handle(handle)
    num_pages, num_cached = len(ids) // size, handle.cached_len // size
    pages = np.zeros(num_pages, np.int32)  # the cached ones keep their own
    pages[num_cached:] = _take(cache, free, num_pages - num_cached, counts)
    cache.insert_pages(ids, pages)
    cache.lock_handle(handle, unlock=True)
    return min(handle.cached_len, item.num_prompt)


def _take(cache: BasePrefixCache, free: PageAllocator, count: int, counts: HitCounts) -> Int32Array:
    if (missing := count - free.num_free) > 0:
        evicted = cache.evict_pages(missing, trim=True)
        counts.num_evicted_pages += len(evicted)
        free.free(evicted)
    return free.allocate(count)
