"""The offline optimum: what the best eviction could have hit, had it known all that came later.

Belady's rule on leaves: of all pages that nobody has locked and that no other cached page continues, the one goes whose
next use is farthest away. A page is used whenever what continues it is used, so a page's next use is never after its
children's, and the farthest of all pages is a leaf by itself (of a chain that is next used at once, the deepest).

So the cached pages that are next used by request j are a run on j's path, and when j comes they are just what is
cached of it, from its start: it is enough to count them. An eviction takes from the greatest j.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush

import numpy as np

from minisgl.simulate.counts import HitCounts
from minisgl.simulate.workload import Item, Workload
from minisgl.utils.arrays import Int32Array

Uses = tuple[list[int], list[int]]


def unique_pages(workload: Workload) -> int:
    """Different pages in the whole trace."""
    seen = np.zeros(workload.num_ids, np.bool_)
    for item in workload.items:
        seen[_pages(workload, item)] = True
    return int(seen.sum())


def next_uses(workload: Workload, progress: Callable[[], None] = lambda: None) -> list[Uses]:
    """For each request: which later requests use its pages next, and how many pages each, from the path's start on.

    len(workload.items) stands for never. Looks at every page of every request once. progress: called after each.
    """
    never = len(workload.items)
    next_use = np.full(workload.num_ids, never, np.int32)
    uses: list[Uses] = [([], [])] * never
    for index in range(never - 1, -1, -1):
        pages = _pages(workload, workload.items[index])
        uses[index] = _runs_of_equal(next_use[pages])
        next_use[pages] = index
        progress()
    return uses


def best_hits(workload: Workload, num_pages: int, uses: Sequence[Uses]) -> HitCounts:
    """Replay the requests one after another with the offline optimum. uses: `next_uses(workload)`.

    All pages of a request are held while it runs. num_pages: at least `workload.longest`.
    """
    pool = _Pool(num_pages, len(workload.items))
    counts = HitCounts()
    for item, (users, runs) in zip(workload.items, uses, strict=True):
        num_hit = pool.take(counts.num_requests)
        counts.add(item, min(num_hit * workload.units_per_page, item.num_prompt))
        counts.num_evicted_pages += pool.make_room(sum(runs) - num_hit)
        pool.put(users, runs)
    return counts


class _Pool:
    """Cached pages by who uses them next."""

    def __init__(self, num_pages: int, never: int) -> None:
        self._room = num_pages
        self._counts = [0] * (never + 1)
        self._farthest: list[int] = []  # a heap of negated users; those that have come have no pages left

    def take(self, user: int) -> int:
        """Hold what is cached of this request's path; how many pages that is. They count as used until `put`."""
        count, self._counts[user] = self._counts[user], 0
        return count

    def make_room(self, num_pages: int) -> int:
        """Take `num_pages` of the free ones; how many had to be evicted for it."""
        self._room -= num_pages
        missing = num_evicted = max(0, -self._room)
        while missing:
            user = -self._farthest[0]
            victims = min(missing, self._counts[user])
            self._counts[user] -= victims
            missing -= victims
            if self._counts[user] == 0:
                heappop(self._farthest)
        self._room += num_evicted
        return num_evicted

    def put(self, users: Sequence[int], runs: Sequence[int]) -> None:
        for user, count in zip(users, runs, strict=True):
            if self._counts[user] == 0:
                heappush(self._farthest, -user)
            self._counts[user] += count


def _pages(workload: Workload, item: Item) -> Int32Array:
    """[pages] the label of each whole page; equal labels are equal pages after equal prefixes."""
    return item.known_ids()[workload.units_per_page - 1 :: workload.units_per_page]


def _runs_of_equal(values: Int32Array) -> Uses:
    """The values of `values` in order, each with the number of times in a row."""
    if len(values) == 0:
        return [], []
    starts = np.concatenate([[0], np.flatnonzero(np.diff(values)) + 1])
    return values[starts].tolist(), np.diff(starts, append=len(values)).tolist()
