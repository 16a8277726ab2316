"""Counts again what the cache manager keeps in step: AssertionError naming what is wrong."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from minisgl.scheduler.allocation import Allocation
from minisgl.scheduler.page_table import PageTable
from minisgl.utils.arrays import Int32Array


def check_pages(
    num_pages: int, free: Int32Array, cached: Int32Array, retired: list[Int32Array], private: list[Int32Array]
) -> None:
    """Each page of the pool is in one place only."""
    pages = np.concatenate([free, cached, *retired, *private])
    num_free, num_cached = len(free), len(cached)
    assert len(pages) == num_pages, (
        f"free {num_free} + cached {num_cached} + private or retired {len(pages) - num_free - num_cached}"
        f" pages are not the {num_pages} of the pool"
    )
    outside = pages[(pages < 0) | (pages >= num_pages)]
    assert len(outside) == 0, f"pages {outside.tolist()} are not in the pool of {num_pages}"
    assert np.bincount(pages).max() == 1, "a page is in two places"


def check_locks(live: Collection[Allocation], page_table: PageTable, num_protected: int) -> None:
    """Rows begin with the pages that their requests have locked in the cache, and nothing else is locked there."""
    locked: set[int] = set()
    for a in live:
        cached = a.handle.get_matched_pages()
        row = page_table.row(a.table_idx)[: len(cached)]
        assert np.array_equal(row, cached), f"row {a.table_idx} holds {row}, the tree {cached}"
        locked.update(cached.tolist())
    assert len(locked) == num_protected, f"{num_protected} pages protected, {len(locked)} held by live requests"


def check_promises(live: Collection[Allocation], num_reserved: int, num_available: int) -> None:
    """What is promised is what is kept of it, and no more than there is but for what was promised regardless."""
    reserved = sum(a.reserved_pages for a in live)
    assert reserved == num_reserved, f"reserved: counted {reserved}, kept {num_reserved}"
    raised = sum(a.raised_pages for a in live)
    assert num_available >= -raised, f"{num_available} pages available, though promises were raised by {raised} only"
