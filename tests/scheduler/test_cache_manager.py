"""The cache manager alone: pages, rows and locks, without a scheduler in front of it."""

from __future__ import annotations

import numpy as np
import pytest

from minisgl.kvcache import PUBLIC, Namespace
from minisgl.scheduler.allocation import Allocation
from minisgl.scheduler.cache_manager import CacheManager
from minisgl.scheduler.growth import Growth
from minisgl.utils.arrays import Int32Array
from minisgl.utils.math import div_ceil


def ids(*values: int) -> Int32Array:
    return np.array(values, np.int32)


def start(manager: CacheManager, tokens: Int32Array, max_len: int, namespace: Namespace = PUBLIC) -> Allocation:
    allocation = manager.admit(manager.match(tokens, namespace), max_len, namespace)
    assert allocation is not None
    grow(manager, allocation, div_ceil(len(tokens), manager.page_size) - allocation.num_pages)
    return allocation


def grow(manager: CacheManager, allocation: Allocation, num_pages: int) -> None:
    held = allocation.num_pages
    manager.grow(Growth(np.array([allocation.table_idx]), ids(held), ids(held + num_pages), num_pages))


def row(manager: CacheManager, allocation: Allocation) -> list[int]:
    return manager.page_table.row(allocation.table_idx)[: allocation.num_pages].tolist()


def test_a_duplicate_page_leaves_the_row_of_the_live_request() -> None:
    """The predecessor freed it and went on decoding from it: two equal prompts in one batch."""
    manager = CacheManager(16, 1, 4, 16, "radix")
    first, second = start(manager, ids(5, 6, 7), 8), start(manager, ids(5, 6, 7), 8)
    assert not set(row(manager, first)) & set(row(manager, second))
    manager.store(first, ids(5, 6, 7))
    manager.store(second, ids(5, 6, 7))
    assert row(manager, second) == row(manager, first)
    assert manager.num_free_pages == 16 - 3
    manager.check_integrity()
    update = manager.take_update()
    told = {(int(r), int(c)): int(p) for r, c, p in zip(update.rows, update.cols, update.pages, strict=True)}
    assert [told[second.table_idx, col] for col in range(3)] == row(manager, first)


@pytest.mark.parametrize(("page", "words"), [(-1, r"pages \[-1\] are not in the pool"), (0, "a page is in two places")])
def test_a_row_that_names_a_wrong_page_is_found(page: int, words: str) -> None:
    manager = CacheManager(16, 1, 4, 16, "radix")
    allocation = start(manager, ids(5, 6, 7), 8)
    manager.page_table.write(allocation.table_idx, 1, ids(page))
    with pytest.raises(AssertionError, match=words):
        manager.check_integrity()


def test_a_duplicate_page_waits_for_the_batches_that_read_it() -> None:
    manager = CacheManager(32, 1, 4, 16, "radix")
    first, second = start(manager, ids(5, 6, 7), 8), start(manager, ids(5, 6, 7), 8)
    manager.store(first, ids(5, 6, 7))
    manager.store(second, ids(5, 6, 7), last_step=4)
    assert manager.num_free_pages == 32 - 6
    manager.check_integrity()
    manager.committed(3)
    assert manager.num_free_pages == 32 - 6
    manager.committed(4)
    assert manager.num_free_pages == 32 - 3
    manager.check_integrity()


@pytest.mark.parametrize("namespace", [PUBLIC, Namespace("salt")], ids=["public", "salt"])
def test_a_duplicate_is_not_locked_on_top_of_pages_in_flight_when_others_were_promised_them(
    namespace: Namespace,
) -> None:
    """Found by the random schedules: holding both copies for a step took a page that another request was owed."""
    manager = CacheManager(8, 1, 4, 16, "radix")
    first, second = (start(manager, ids(5, 6, 7), 3, namespace) for _ in range(2))
    manager.release(first, ids(5, 6, 7))
    start(manager, ids(9), 5)
    manager.store(second, ids(5, 6, 7), last_step=0)
    manager.check_integrity()
    manager.store(second, ids(5, 6, 7))
    manager.check_integrity()
    assert manager.available_pages == 0


def test_admission_counts_pages_not_tokens() -> None:
    manager = CacheManager(4, 16, 8, 64, "radix")
    live = [start(manager, ids(n), 2) for n in range(1, 5)]  # one page each, though 2 of 64 slots are wanted
    assert manager.admit(manager.match(ids(9)), 2) is None
    manager.release(live[0], ids(1))
    assert manager.admit(manager.match(ids(9)), 2) is not None
    manager.check_integrity()


def test_the_lock_itself_may_take_away_the_room() -> None:
    """Six pages wanted, four of them cached: the other two are not there once these four are locked."""
    manager = CacheManager(8, 1, 4, 16, "radix")
    manager.release(start(manager, ids(1, 2, 3, 4), 4), ids(1, 2, 3, 4))
    start(manager, ids(7, 8, 9), 3)
    handle = manager.match(ids(1, 2, 3, 4, 5))
    assert handle.cached_len == 4
    assert manager.available_pages == 5
    assert manager.admit(handle, 4 + 2) is None
    assert manager.available_pages == 5
    manager.check_integrity()
    assert manager.admit(handle, 4 + 1) is not None


def test_what_was_promised_is_never_refused() -> None:
    manager = CacheManager(8, 1, 4, 16, "radix")
    manager.release(start(manager, ids(1, 2, 3, 4), 4), ids(1, 2, 3, 4))
    a = start(manager, ids(5), 4)
    b = start(manager, ids(6), 4)
    assert manager.admit(manager.match(ids(7)), 1) is None
    for _ in range(3):  # evicts what is cached, two pages at a time
        grow(manager, a, 1)
        grow(manager, b, 1)
        manager.check_integrity()
    assert manager.num_free_pages == 0
    with pytest.raises(AssertionError, match="promised"):
        grow(manager, a, 1)


def test_a_locked_prefix_survives_eviction_of_all_else() -> None:
    manager = CacheManager(8, 1, 4, 16, "radix")
    manager.release(start(manager, ids(1, 2, 3, 4), 4), ids(1, 2, 3, 4))
    reader = manager.admit(manager.match(ids(1, 2, 9)), 3)
    assert reader is not None
    assert row(manager, reader) == [0, 1]
    other = start(manager, ids(7, 7, 7, 7, 7), 5)
    assert not set(row(manager, other)) & {0, 1}
    manager.check_integrity()


def test_a_partial_page_is_freed_with_its_request() -> None:
    manager = CacheManager(8, 4, 4, 32, "radix")
    tokens = ids(*range(1, 11))
    manager.release(start(manager, tokens, 12), tokens)
    assert manager.num_free_pages == 8 - 2
    assert manager.match(tokens).cached_len == 8
    manager.check_integrity()


def test_the_naive_cache_keeps_nothing() -> None:
    manager = CacheManager(8, 1, 4, 16, "naive")
    allocation = start(manager, ids(1, 2, 3), 4)
    manager.store(allocation, ids(1, 2, 3))
    manager.check_integrity()
    manager.release(allocation, ids(1, 2, 3))
    assert manager.num_free_pages == 8
    assert manager.match(ids(1, 2, 3)).cached_len == 0


def test_integrity_check_names_a_lost_page() -> None:
    manager = CacheManager(8, 1, 4, 16, "radix")
    manager._free.allocate(1)
    with pytest.raises(AssertionError, match=r"are not the 8 of the pool"):
        manager.check_integrity()


def test_integrity_check_names_a_row_that_left_the_tree() -> None:
    manager = CacheManager(8, 1, 4, 16, "radix")
    allocation = start(manager, ids(1, 2, 3), 4)
    manager.store(allocation, ids(1, 2, 3))
    manager.page_table.row(allocation.table_idx)[1] = 7
    with pytest.raises(AssertionError, match="row 0 holds"):
        manager.check_integrity()


def test_after_a_flush_a_running_request_keeps_its_pages_and_leaves_nothing_behind() -> None:
    manager = CacheManager(16, 1, 4, 16, "radix")
    first = start(manager, ids(5, 6, 7, 8), 6)
    manager.store(first, ids(5, 6, 7, 8))
    second = start(manager, ids(5, 6, 7, 9), 6)
    assert second.hit_len == 3
    manager.purge([first, second])
    manager.check_integrity()
    assert manager.match(ids(5, 6, 7, 8)).cached_len == 0
    third = start(manager, ids(5, 6, 7, 8), 6)
    manager.store(third, ids(5, 6, 7, 8))
    manager.store(second, ids(5, 6, 7, 9))
    assert manager.match(ids(5, 6, 7, 9, 1)).cached_len == 3
    assert not set(row(manager, third)) & {*row(manager, first), *row(manager, second)}
    for allocation, tokens in ((first, ids(5, 6, 7, 8)), (second, ids(5, 6, 7, 9))):
        manager.release(allocation, tokens)
        manager.check_integrity()
    assert manager.num_free_pages == 16 - 4


def test_one_salt_never_finds_what_another_one_stored() -> None:
    manager = CacheManager(16, 1, 4, 16, "radix")
    mine = Namespace("mine")
    manager.release(start(manager, ids(5, 6, 7), 4, mine), ids(5, 6, 7))
    found = [manager.match(ids(5, 6, 7, 8), space).cached_len for space in (mine, PUBLIC, Namespace("other"))]
    assert found == [3, 0, 0]
    manager.check_integrity()


def test_a_promise_may_be_raised_over_what_there_is_and_then_nobody_starts() -> None:
    manager = CacheManager(8, 1, 4, 16, "radix")
    first, second = start(manager, ids(5), 3), start(manager, ids(6), 3)
    manager.promise(first, 8)
    assert manager.available_pages == -3
    assert manager.admit(manager.match(ids(7)), 1) is None
    manager.check_integrity()
    epoch = manager.epoch
    manager.promise(first, 2)
    assert manager.epoch > epoch  # who was blocked may fit now
    assert manager.available_pages == 3
    manager.check_integrity()
    manager.promise(second, 0)  # what it holds stays promised
    assert second.promised_pages == 1
    manager.check_integrity()


def test_integrity_check_names_pages_promised_twice() -> None:
    manager = CacheManager(8, 1, 4, 16, "radix")
    first = start(manager, ids(5), 3)
    manager.promise(first, 10)
    first.raised_pages = 0
    with pytest.raises(AssertionError, match="-2 pages available, though promises were raised by 0"):
        manager.check_integrity()


def test_pages_that_nobody_else_who_runs_holds_are_counted() -> None:
    manager = CacheManager(16, 1, 4, 16, "radix")
    first = start(manager, ids(5, 6, 7, 8), 6)
    manager.store(first, ids(5, 6, 7, 8))
    second = start(manager, ids(5, 6, 9), 6)
    assert manager.sole_pages([first, second]) == [2, 1]
    manager.release(first, ids(5, 6, 7, 8))
    assert manager.sole_pages([second]) == [3]


def test_after_the_purge_of_a_prefix_only_those_that_begin_so_store_nothing() -> None:
    manager = CacheManager(16, 1, 4, 16, "radix")
    purged, other = start(manager, ids(5, 6, 7), 4), start(manager, ids(5, 9, 9), 4)
    for allocation, tokens in ((purged, ids(5, 6, 7)), (other, ids(5, 9, 9))):
        manager.store(allocation, tokens)
    manager.purge([purged], PUBLIC, ids(5, 6))
    manager.check_integrity()
    for allocation, tokens in ((purged, ids(5, 6, 7)), (other, ids(5, 9, 9))):
        manager.release(allocation, tokens)
        manager.check_integrity()
    assert manager.match(ids(5, 6, 7, 1)).cached_len == 1
    assert manager.match(ids(5, 9, 9, 1)).cached_len == 3
    assert manager.num_free_pages == 16 - 3
