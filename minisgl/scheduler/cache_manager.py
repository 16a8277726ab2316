"""Who has which page: free pages, the prefix cache, and the page-table rows of running requests.

    admit   match a prefix, lock it, reserve what the request may need, take a page-table row
    grow    pages for tokens about to be computed
    store   computed whole pages enter the prefix cache, still locked by their request
    release the same, then everything is given up

Everything is host-side integers; the engine learns of changed page-table cells through `take_update`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from minisgl.core import PageTableUpdate
from minisgl.core.batch import Int32Array
from minisgl.kvcache import create_prefix_cache
from minisgl.kvcache.base import PUBLIC, BaseCacheHandle, Namespace
from minisgl.scheduler.page_allocator import PageAllocator
from minisgl.scheduler.page_table import PageTable
from minisgl.utils.math import div_ceil


@dataclass(slots=True, eq=False)
class Allocation:
    """A request's pages: `num_pages` cells of row `table_idx`, of which the handle's belong to the prefix cache.

    0 ........ handle.cached_len ........ num_pages ........ max_pages   (in pages)
    |  in the tree, locked  |  private  |  reserved, not taken yet  |

    num_flushes: the manager's when it was made.
    """

    table_idx: int
    handle: BaseCacheHandle
    num_pages: int
    max_pages: int
    hit_len: int
    namespace: Namespace
    num_flushes: int


class CacheManager:
    """Owns pages, prefix cache, locks and page-table rows. `admit` may say no; what it grants never fails later."""

    def __init__(self, num_pages: int, page_size: int, max_running_req: int, max_seq_len: int, cache_type: str) -> None:
        self.page_size = page_size
        self.num_pages = num_pages
        self.prefix_cache = create_prefix_cache(torch.device("cpu"), cache_type, page_size)
        self.page_table = PageTable(max_running_req, div_ceil(max_seq_len, page_size))
        self.epoch = 0  # grows whenever pages may have become available: a blocked request tries again only then
        self.num_evicted_pages = 0
        self.num_flushes = 0
        self._free = PageAllocator(num_pages)
        self._reserved = 0  # pages promised to admitted requests and not taken yet
        self._retired: list[tuple[int, Int32Array]] = []  # (step, pages that launched batches up to it still read)
        self._live: dict[int, Allocation] = {}  # by table_idx

    @property
    def available_pages(self) -> int:
        """Pages that a new request could be promised: free or evictable, and promised to nobody."""
        return self._free.num_free + self.prefix_cache.size_info.evictable_size // self.page_size - self._reserved

    @property
    def num_free_pages(self) -> int:
        return self._free.num_free

    @property
    def num_free_rows(self) -> int:
        return self.page_table.num_free_rows

    def match(self, input_ids: Int32Array, namespace: Namespace = PUBLIC) -> BaseCacheHandle:
        """The cached prefix that a request with this prompt would start from: at most all tokens but the last."""
        return self.prefix_cache.match_prefix(input_ids[:-1], namespace).cuda_handle

    def admit(self, handle: BaseCacheHandle, max_len: int, namespace: Namespace = PUBLIC) -> Allocation | None:
        """Start a request on the matched prefix, with room for KV of `max_len` tokens; None if there is none now.

        namespace: in which the prefix was matched, and what the request computes is stored.
        """
        matched, max_pages = handle.cached_len // self.page_size, div_ceil(max_len, self.page_size)
        if self.num_free_rows == 0 or max_pages - matched > self.available_pages:
            return None
        self.prefix_cache.lock_handle(handle)
        if max_pages - matched > self.available_pages:  # the lock took the prefix itself out of the evictable pages
            self._unlock(handle)
            return None
        self._reserved += max_pages - matched
        row, hit_len = self.page_table.take_row(), handle.cached_len
        allocation = Allocation(row, handle, matched, max_pages, hit_len, namespace, self.num_flushes)
        if matched:
            self.page_table.write(allocation.table_idx, 0, handle.get_matched_pages())
        self._live[allocation.table_idx] = allocation
        return allocation

    def grow(self, allocation: Allocation, device_len: int) -> None:
        """Take pages so that the row covers `device_len` tokens; evicts if it must."""
        count = div_ceil(device_len, self.page_size) - allocation.num_pages
        if count <= 0:
            return
        assert allocation.num_pages + count <= allocation.max_pages, f"{device_len=} is over what {allocation} reserved"
        self.page_table.write(allocation.table_idx, allocation.num_pages, self._take(count))
        allocation.num_pages += count
        self._reserved -= count

    def store(self, allocation: Allocation, ids: Int32Array, last_step: int = -1) -> None:
        """Put the whole pages of `ids` (all computed) into the prefix cache; the request keeps them locked.

        Pages that the cache had already, from another request, replace the request's own in its row. Its own go
        back once the batches launched up to `last_step`, which were planned with the old row, are committed. Until
        then both are held; if there is no room for that, nothing is stored now. Nor is anything stored by a request
        from before a flush: it began with what must not be matched again.
        """
        old, size = allocation.handle, self.page_size
        if not self.shares(allocation):
            return
        if len(ids) // size <= old.cached_len // size or (last_step >= 0 and not self._can_hold_both(allocation, ids)):
            return
        pages = self.page_table.row(allocation.table_idx)[: len(ids) // size]
        cached_len, handle = self.prefix_cache.insert_pages(ids, pages, allocation.namespace)
        self.prefix_cache.lock_handle(handle)
        self._unlock(old)
        allocation.handle = handle
        self._replace_duplicates(allocation, old.cached_len // size, cached_len // size, last_step)
        self.epoch += 1

    def release(self, allocation: Allocation, ids: Int32Array) -> None:
        """Store `ids`, then give up row, lock, reservation and private pages. No launched batch may read the row."""
        self.store(allocation, ids)
        row = self.page_table.row(allocation.table_idx)
        self._free.free(row[allocation.handle.cached_len // self.page_size : allocation.num_pages])
        self._unlock(allocation.handle)
        self._reserved -= allocation.max_pages - allocation.num_pages
        del self._live[allocation.table_idx]
        self.page_table.give_row(allocation.table_idx)
        self.epoch += 1

    def shares(self, allocation: Allocation) -> bool:
        """Whether others can match what this request stores: not once a flush has come after its start."""
        return self.prefix_cache.shares and allocation.num_flushes == self.num_flushes

    def flush(self) -> None:
        """Nothing that was computed until now is matched again. Running requests keep what they hold until they end.

        What was evictable is free now, so no more pages are available than before: `epoch` stays.
        """
        self._free.free(self.prefix_cache.flush())
        self.num_flushes += 1

    def committed(self, step: int) -> None:
        """Batches up to `step` have run: pages that only they still read are free."""
        while self._retired and self._retired[0][0] <= step:
            self._free.free(self._retired.pop(0)[1])
            self.epoch += 1

    def take_update(self) -> PageTableUpdate:
        """Page-table cells written since the last call."""
        return self.page_table.take_update()

    def check_integrity(self) -> None:
        """Recount pages, tree, rows, locks and reservations; AssertionError naming what is wrong."""
        self.prefix_cache.check_integrity()
        self._check_pages()
        self._check_rows()
        reserved = sum(a.max_pages - a.num_pages for a in self._live.values())
        assert reserved == self._reserved, f"reserved: counted {reserved}, kept {self._reserved}"
        assert self.available_pages >= 0, f"{self.available_pages} pages available: more promised than there are"

    def _take(self, count: int) -> Int32Array:
        if (missing := count - self._free.num_free) > 0:
            evicted = self.prefix_cache.evict_pages(missing)
            self.num_evicted_pages += len(evicted)
            self._free.free(evicted)
        return self._free.allocate(count)

    def _unlock(self, handle: BaseCacheHandle) -> None:
        self.prefix_cache.lock_handle(handle, unlock=True)
        self._free.free(self.prefix_cache.reclaim())

    def _can_hold_both(self, allocation: Allocation, ids: Int32Array) -> bool:
        """Whether locking the cache's duplicates of private pages leaves enough for what was promised to others."""
        found = self.prefix_cache.match_prefix(ids, allocation.namespace).cuda_handle
        duplicates = found.cached_len - allocation.handle.cached_len
        return duplicates // self.page_size <= self.available_pages

    def _replace_duplicates(self, allocation: Allocation, begin: int, end: int, last_step: int) -> None:
        if end <= begin:
            return
        own = self.page_table.row(allocation.table_idx)[begin:end].copy()
        self.page_table.write(allocation.table_idx, begin, allocation.handle.get_matched_pages()[begin:end])
        if last_step < 0:
            self._free.free(own)
        else:
            self._retired.append((last_step, own))

    def _check_pages(self) -> None:
        size = self.page_size
        private = [
            self.page_table.row(a.table_idx)[a.handle.cached_len // size : a.num_pages] for a in self._live.values()
        ]
        places = [self._free.free_pages(), self.prefix_cache.cached_pages(), *private, *(p for _, p in self._retired)]
        pages = np.concatenate(places)
        num_free, num_cached = len(places[0]), len(places[1])
        assert len(pages) == self.num_pages, (
            f"free {num_free} + cached {num_cached} + private or retired {len(pages) - num_free - num_cached}"
            f" pages are not the {self.num_pages} of the pool"
        )
        assert len(np.unique(pages)) == len(pages), "a page is in two places"

    def _check_rows(self) -> None:
        locked: set[int] = set()
        for a in self._live.values():
            cached = a.handle.get_matched_pages()
            row = self.page_table.row(a.table_idx)[: len(cached)]
            assert np.array_equal(row, cached), f"row {a.table_idx} holds {row}, the tree {cached}"
            locked.update(cached.tolist())
        protected = self.prefix_cache.size_info.protected_size // self.page_size
        assert len(locked) == protected, f"{protected} pages protected, {len(locked)} held by live requests"
        self.page_table.check_integrity(self._live)
