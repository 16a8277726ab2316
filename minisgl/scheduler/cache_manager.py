"""Who has which page: free pages, the prefix cache, and the page-table rows of running requests.

    admit   match a prefix, lock it, promise room for what the request may need, take a page-table row
    promise promise more or less of it later
    grow    pages for tokens about to be computed, of all who run out of them at once
    store   computed whole pages enter the prefix cache, still locked by their request
    release the same, then everything is given up

Everything is host-side integers; the engine learns of changed page-table cells through `take_update`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch

from minisgl.core import Explanation, PageTableUpdate
from minisgl.kvcache import create_prefix_cache
from minisgl.kvcache.types import DEFAULT_EVICTION, PUBLIC, BaseCacheHandle, Namespace
from minisgl.scheduler.allocation import Allocation
from minisgl.scheduler.growth import Growth
from minisgl.scheduler.page_allocator import PageAllocator
from minisgl.scheduler.page_table import PageTable
from minisgl.scheduler.recount import check_locks, check_pages, check_promises
from minisgl.scheduler.rows import RowIndex, Rows
from minisgl.utils.arrays import NO_IDS, Int32Array
from minisgl.utils.math import div_ceil


class CacheManager:
    """Owns pages, prefix cache, locks and page-table rows. explains: unless `ghost_tokens`, the cache's, is None.

    `admit` may say no. What it grants never fails later, unless somebody was promised more since: then no more
    than `obtainable_pages` may be asked of `grow`.
    """

    def __init__(
        self,
        num_pages: int,
        page_size: int,
        max_running_req: int,
        max_seq_len: int,
        cache_type: str,
        eviction: str = DEFAULT_EVICTION,
        ghost_tokens: int | None = None,
    ) -> None:
        self.page_size = page_size
        self.num_pages = num_pages
        self.explains = ghost_tokens is not None
        self.prefix_cache = create_prefix_cache(torch.device("cpu"), cache_type, page_size, eviction, ghost_tokens)
        self.page_table = PageTable(max_running_req, div_ceil(max_seq_len, page_size))
        self.rows = Rows(max_running_req, max_seq_len)
        self.epoch = 0  # grows whenever pages may have become available: a blocked request tries again only then
        self.num_evicted_pages = 0
        self.num_stores = 0  # while it stays, everybody who runs holds the same prefix
        self._free = PageAllocator(num_pages)
        self._reserved = 0  # pages promised to admitted requests and not taken yet
        self._retired: list[tuple[int, Int32Array]] = []  # (step, pages that launched batches up to it still read)
        self._live: dict[int, Allocation] = {}  # by table_idx

    @property
    def available_pages(self) -> int:
        """Pages that a new request could be promised: free or evictable, and promised to nobody.

        Less than 0 after promises were raised over what there is.
        """
        return self.obtainable_pages - self._reserved

    @property
    def obtainable_pages(self) -> int:
        """Pages that are free or evictable, whoever they are promised to."""
        return self._free.num_free + self.prefix_cache.size_info.evictable_size // self.page_size

    @property
    def num_free_pages(self) -> int:
        return self._free.num_free

    @property
    def num_free_rows(self) -> int:
        return self.page_table.num_free_rows

    def match(self, input_ids: Int32Array, namespace: Namespace = PUBLIC) -> BaseCacheHandle:
        """The cached prefix that a request with this prompt would start from: at most all tokens but the last."""
        return self.prefix_cache.match_prefix(input_ids[:-1], namespace).cuda_handle

    def probe(self, input_ids: Int32Array, namespace: Namespace = PUBLIC) -> int:
        """How many tokens `match` would find; changes nothing."""
        return self.prefix_cache.probe(input_ids[:-1], namespace)

    def explain(
        self, input_ids: Int32Array, namespace: Namespace = PUBLIC, handle: BaseCacheHandle | None = None
    ) -> Explanation:
        """Why the tokens of this prompt would be computed, or not, if it were admitted now; changes nothing.

        handle: what `match` has found, where it was asked.
        """
        return self.prefix_cache.explain(input_ids, namespace, handle)

    def admit(
        self, handle: BaseCacheHandle, kv_len: int, namespace: Namespace = PUBLIC, priority: int = 0
    ) -> Allocation | None:
        """Start a request on the matched prefix, with room promised for KV of `kv_len` tokens; None if there is none.

        namespace: in which the prefix was matched, and what the request computes is stored. priority: what is stored
        is worth so much to an eviction policy that asks.
        """
        matched, promised = handle.cached_len // self.page_size, div_ceil(kv_len, self.page_size)
        if self.num_free_rows == 0 or promised - matched > self.available_pages:
            return None
        self.prefix_cache.lock_handle(handle)
        if promised - matched > self.available_pages:  # the lock took the prefix itself out of the evictable pages
            self._unlock(handle)
            return None
        self._reserved += promised - matched
        row = self.page_table.take_row()
        self.rows.num_pages[row], self.rows.promised_pages[row] = matched, promised
        allocation = Allocation(self.rows, row, handle, handle.cached_len, namespace, priority)
        if matched:
            self.page_table.write(allocation.table_idx, 0, handle.get_matched_pages())
        self._live[allocation.table_idx] = allocation
        return allocation

    def promise(self, allocation: Allocation, kv_len: int) -> None:
        """Promise room for `kv_len` tokens in all, more or less than until now, whether or not there is so much."""
        change = allocation.promise(div_ceil(kv_len, self.page_size))
        self._reserved += change
        if change < 0:
            self.epoch += 1

    def growth(self, table_idxs: RowIndex, counts: Int32Array) -> Growth:
        """What these rows lack to compute so many tokens more."""
        return Growth.of(self.rows, self.page_size, table_idxs, counts)

    def grow(self, growth: Growth) -> None:
        """Give each its pages, which it was promised; evicts if it must."""
        table_idxs, held, wanted, total = growth
        if total == 0:
            return
        short = growth.short(self.rows)
        assert len(short) == 0, f"pages that rows {short.tolist()} want were not promised"
        self.page_table.write_all(table_idxs, held, wanted - held, self._take(total))
        self.rows.num_pages[table_idxs] = wanted
        self._reserved -= total

    def sole_pages(self, allocations: Sequence[Allocation]) -> list[int]:
        """For each, the pages that only it holds of all that run: what it would give up, and may lose."""
        rows = {idx: self.page_table.row(idx)[: live.num_pages] for idx, live in self._live.items()}
        num_holders = np.bincount(np.concatenate(list(rows.values())), minlength=self.num_pages)
        return [int((num_holders[rows[each.table_idx]] == 1).sum()) for each in allocations]

    def store(self, allocation: Allocation, ids: Int32Array, last_step: int = -1) -> None:
        """Put the whole pages of `ids` (all computed) into the prefix cache; the request keeps them locked.

        Pages that the cache had already, from another request, replace the request's own in its row. Its own go
        back once the batches launched up to `last_step`, which were planned with the old row, are committed. Until
        then both are held; if there is no room for that, nothing is stored now. Nor is anything stored by a stale
        one: it begins with what must not be matched again.
        """
        old, size = allocation.handle, self.page_size
        if not self.shares(allocation):
            return
        if len(ids) // size <= old.cached_len // size or (last_step >= 0 and not self._can_hold_both(allocation, ids)):
            return
        pages = self.page_table.row(allocation.table_idx)[: len(ids) // size]
        cached_len, handle = self.prefix_cache.insert_pages(ids, pages, allocation.namespace, allocation.priority)
        self.prefix_cache.lock_handle(handle)
        self._unlock(old)
        allocation.handle = handle
        self.num_stores += 1
        self._replace_duplicates(allocation, old.cached_len // size, cached_len // size, last_step)
        self.epoch += 1

    def release(self, allocation: Allocation, ids: Int32Array) -> None:
        """Store `ids`, then give up row, lock, reservation and private pages. No launched batch may read the row."""
        self.store(allocation, ids)
        if self.explains:
            self._note_tail(allocation, ids)
        row = self.page_table.row(allocation.table_idx)
        self._free.free(row[allocation.handle.cached_len // self.page_size : allocation.num_pages])
        self._unlock(allocation.handle)
        self._reserved -= allocation.reserved_pages
        del self._live[allocation.table_idx]
        self.page_table.give_row(allocation.table_idx)
        self.epoch += 1

    def shares(self, allocation: Allocation) -> bool:
        """Whether others can match what this request stores: not once its beginning was purged after its start."""
        return self.prefix_cache.shares and not allocation.is_stale

    def purge(
        self, stale: Iterable[Allocation], namespace: Namespace | None = None, prefix: Int32Array = NO_IDS
    ) -> int:
        """Nothing cached until now that begins with `prefix` in `namespace` (None: in any) is matched again.

        stale: of the requests that begin so. They keep what they hold until they end, and store nothing any more.
        Returns the number of tokens freed now.
        What was evictable is free now, so no more pages are available than before: `epoch` stays.
        """
        for allocation in stale:
            allocation.is_stale = True
        freed = self.prefix_cache.purge(namespace, prefix)
        self._free.free(freed)
        return len(freed) * self.page_size

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
        live, size = self._live.values(), self.page_size
        private = [self.page_table.row(a.table_idx)[a.handle.cached_len // size : a.num_pages] for a in live]
        retired = [pages for _, pages in self._retired]
        check_pages(self.num_pages, self._free.free_pages(), self.prefix_cache.cached_pages(), retired, private)
        check_locks(live, self.page_table, self.prefix_cache.size_info.protected_size // size)
        self.page_table.check_integrity(self._live)
        check_promises(live, self._reserved, self.available_pages)

    def _note_tail(self, allocation: Allocation, ids: Int32Array) -> None:
        """What is known of the request, but fills no page, and so is not stored."""
        num_stored = len(ids) // self.page_size * self.page_size
        if num_stored < len(ids) and num_stored == allocation.handle.cached_len and self.shares(allocation):
            self.prefix_cache.note_tail(allocation.handle, ids[num_stored:], allocation.namespace)

    def _take(self, count: int) -> Int32Array:
        if (missing := count - self._free.num_free) > 0:
            evicted = self.prefix_cache.evict_pages(missing, trim=True)
            self.num_evicted_pages += len(evicted)
            self._free.free(evicted)
        return self._free.allocate(count)

    def _unlock(self, handle: BaseCacheHandle) -> None:
        self.prefix_cache.lock_handle(handle, unlock=True)
        self._free.free(self.prefix_cache.reclaim())

    def _can_hold_both(self, allocation: Allocation, ids: Int32Array) -> bool:
        """Whether locking the cache's duplicates of private pages leaves enough for what was promised to others."""
        duplicates = self.prefix_cache.probe(ids, allocation.namespace) - allocation.handle.cached_len
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
