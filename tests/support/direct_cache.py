"""What can be done to the cache of a running scheduler past it, so that pages, rows and promises still add up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from support.hand_driven import HandDriven
from support.radix_model import contents, nodes_of, tagged

from minisgl.kvcache import BaseCacheHandle, Namespace
from minisgl.scheduler.allocation import Allocation
from minisgl.utils.arrays import NO_IDS

Locked = tuple[Allocation, Sequence[int]]


class DirectCache:
    """locked: prefixes that are held as a request would hold them, with a row of its own and no promise."""

    def __init__(self, driven: HandDriven) -> None:
        self.driven = driven
        self.locked: list[Locked] = []

    def insert(self, ids: Sequence[int], namespace: Namespace, priority: int) -> None:
        """As many whole pages as are free; the oracle gets their KV."""
        manager, size, slots = self.driven.manager, self.driven.manager.page_size, self.driven.engine.slots
        num_pages = min(len(ids) // size, manager.num_free_pages)
        whole, pages = list(ids[: num_pages * size]), manager._free.allocate(num_pages)
        for at, token in enumerate(whole):
            slots[pages[at // size] * size + at % size] = (token, at)
        cached_len, handle = self.driven.cache.insert_pages(np.array(whole, np.int32), pages, namespace, priority)
        assert handle.cached_len == len(whole)
        manager._free.free(pages[: cached_len // size])
        self.driven.spaces.add(namespace)
        self.driven.promises.inserted(whole, namespace)

    def probe(self, ids: Sequence[int], namespace: Namespace) -> int:
        """As many tokens as a look at all that is cached finds; nothing changes."""
        before, size = self._all(), self.driven.manager.page_size
        tokens, cached = tagged(ids[:-1], namespace), before[0]
        found = self.driven.manager.probe(np.array(ids, np.int32), namespace)
        if not namespace.adapter:
            assert self.driven.probe(ids, namespace.cache_salt) == found
        assert self._all() == before, "a probe changed something"
        hits = [end for end in range(size, len(tokens) + 1, size) if tokens[:end] in cached]
        assert found == max(hits, default=0)
        return found

    def match(self, ids: Sequence[int], namespace: Namespace) -> BaseCacheHandle:
        """It finds what a probe says, and pages that hold the KV of it."""
        found = self.probe(ids, namespace)
        handle = self.driven.manager.match(np.array(ids, np.int32), namespace)
        assert handle.cached_len == found
        self._check_kv(handle.get_matched_pages().tolist(), ids)
        return handle

    def lock(self, ids: Sequence[int], namespace: Namespace) -> None:
        """If there is a row and there are pages."""
        handle = self.match(ids, namespace)
        allocation = self.driven.manager.admit(handle, handle.cached_len, namespace)
        if allocation is not None:
            self.locked.append((allocation, ids))

    def unlock(self, number: int) -> None:
        allocation, ids = self.locked.pop(number % len(self.locked))
        self._check_kv(allocation.handle.get_matched_pages().tolist(), ids)
        self.driven.manager.release(allocation, NO_IDS)

    def evict(self, num_pages: int, trim: bool) -> None:
        """At most as many as nobody has locked, and as were promised to nobody."""
        manager = self.driven.manager
        num_pages = min(num_pages, self.driven.cache.size_info.evictable_size // manager.page_size)
        before = len(self.driven.cache.cached_pages())
        freed = self.driven.cache.evict_pages(num_pages, trim)
        assert len(freed) == num_pages or (len(freed) > num_pages and not trim)
        assert len(self.driven.cache.cached_pages()) == before - len(freed)
        manager._free.free(freed)

    def watch(self, ids: Sequence[int], namespace: Namespace) -> None:
        watch = self.driven.cache.watch(np.array(ids, np.int32), namespace)
        assert watch.cached_len == self.driven.cache.probe(np.array(ids, np.int32), namespace)
        self.driven.watched.append((watch, list(ids), namespace))

    def expect(self, number: int, expected: bool) -> None:
        self.driven.has_expected = True
        self.driven.cache.expect(self._watch(number), expected)

    def unwatch(self, number: int) -> None:
        self.driven.cache.unwatch(self.driven.watched.pop(number % len(self.driven.watched))[0])

    def advance(self, budget: int) -> None:
        """Who has changed is told; once all have gone on, everybody's place is where a match would end."""
        before = {watch: watch.cached_len for watch, *_ in self.driven.watched}
        changed = set(self.driven.cache.advance_watches(budget))
        assert all(watch in changed or watch.cached_len == before[watch] for watch in before)
        if budget >= 1000:
            for watch, ids, namespace in self.driven._watches():
                assert watch.cached_len == self.driven.cache.probe(ids, namespace)

    def release_all(self) -> None:
        while self.locked:
            self.unlock(0)
        while self.driven.watched:
            self.unwatch(0)

    def _watch(self, number: int) -> Any:
        return self.driven.watched[number % len(self.driven.watched)][0]

    def _check_kv(self, pages: Sequence[int], ids: Sequence[int]) -> None:
        size = self.driven.manager.page_size
        held = [self.driven.engine.slots[page * size + offset] for page in pages for offset in range(size)]
        assert held == [(token, at) for at, token in enumerate(ids[: len(held)])]

    def _all(self) -> tuple[dict[Any, Any], int, list[Any], object]:
        cache = self.driven.cache
        return contents(cache), cache._tree.clock, list(nodes_of(cache)), cache.size_info  # type: ignore[attr-defined]
