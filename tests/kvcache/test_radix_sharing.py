"""Which prefixes lie in the same pages: groups of rows, level by level."""

from __future__ import annotations

import random
from itertools import combinations

import numpy as np
import pytest
import torch

from minisgl.kvcache import PUBLIC, BaseCacheHandle, NaivePrefixCache, Namespace, RadixPrefixCache


def insert(cache: RadixPrefixCache, prompt: list[int], first_page: int, namespace: Namespace = PUBLIC) -> None:
    num_pages = len(prompt) // cache.page_size
    cache.insert_pages(
        np.array(prompt, np.int32), np.arange(first_page, first_page + num_pages, dtype=np.int32), namespace
    )


def lock(cache: RadixPrefixCache, prompt: list[int], namespace: Namespace = PUBLIC) -> BaseCacheHandle:
    handle = cache.match_prefix(np.array(prompt, np.int32), namespace).cuda_handle
    cache.lock_handle(handle)
    return handle


def make(prompts: list[list[int]], page_size: int = 1) -> tuple[RadixPrefixCache, list[BaseCacheHandle]]:
    """A cache of these prompts, and a locked handle for each."""
    cache = RadixPrefixCache(torch.device("cpu"), page_size)
    for number, prompt in enumerate(prompts):
        insert(cache, prompt, 100 * number)
    return cache, [lock(cache, prompt) for prompt in prompts]


def groups(cache: RadixPrefixCache, handles: list[BaseCacheHandle]) -> list[tuple[list[int], int, int]]:
    return [(group.rows.tolist(), group.begin, group.end) for group in cache.find_groups(handles)]


def test_each_level_of_the_tree_that_two_rows_share_is_a_group() -> None:
    system, shot = [1, 2, 3], [4, 5]
    cache, handles = make([[*system, *shot, 7], [*system, 9], [*system, *shot, 8], [6], [*system, *shot, 8, 8]])
    assert groups(cache, handles) == [([0, 1, 2, 4], 0, 3), ([0, 2, 4], 3, 5), ([2, 4], 5, 6)]


def test_a_row_that_ends_where_others_go_on_shares_all_it_has() -> None:
    cache, handles = make([[1, 2, 3, 4], [1, 2]])
    assert groups(cache, handles) == [([0, 1], 0, 2)]
    assert groups(cache, handles[::-1]) == [([0, 1], 0, 2)]


def test_rows_that_hold_the_same_prefix_share_it_to_the_end() -> None:
    cache, handles = make([[1, 2, 3]])
    assert groups(cache, [*handles, lock(cache, [1, 2, 3])]) == [([0, 1], 0, 3)]


def test_nodes_with_the_same_rows_below_them_are_one_group() -> None:
    cache, handles = make([[1, 2, 3, 4, 5], [1, 2, 3, 4, 6]])
    before = groups(cache, handles)
    lock(cache, [1, 2])  # which splits the node that both begin with
    assert groups(cache, handles) == before == [([0, 1], 0, 4)]


def test_only_whole_pages_are_shared() -> None:
    cache, handles = make([[1, 1, 2, 2, 3, 3], [1, 1, 2, 2, 3, 4], [1, 1, 2, 5]], page_size=2)
    assert groups(cache, handles) == [([0, 1, 2], 0, 2), ([0, 1], 2, 4)]


def test_a_row_alone_and_a_row_of_nothing_share_nothing() -> None:
    cache, handles = make([[1, 2], [3]])
    assert groups(cache, [*handles, lock(cache, [9]), lock(cache, [9])]) == []
    assert groups(cache, []) == []


def test_namespaces_share_nothing() -> None:
    cache, handles = make([[1, 2]])
    insert(cache, [1, 2], 50, Namespace("a"))
    assert groups(cache, [*handles, lock(cache, [1, 2], Namespace("a"))]) == []


def test_what_was_purged_is_shared_by_its_readers_and_not_with_what_came_after() -> None:
    cache, old = make([[1, 2, 3], [1, 2, 4]])
    cache.flush()
    insert(cache, [1, 2, 3], 50)
    new = [lock(cache, [1, 2, 3]), lock(cache, [1, 2])]
    assert groups(cache, [*old, *new]) == [([0, 1], 0, 2), ([2, 3], 0, 2)]


def test_a_cache_that_keeps_nothing_has_no_groups() -> None:
    cache = NaivePrefixCache(torch.device("cpu"), 1)
    handles = [cache.match_prefix(np.array([1, 2], np.int32)).cuda_handle for _ in range(2)]
    assert cache.find_groups(handles) == ()


@pytest.mark.parametrize("page_size", [1, 2])
def test_two_rows_are_together_for_as_long_as_their_pages_are_the_same(page_size: int) -> None:
    rng = random.Random(page_size)
    for _ in range(100):
        prompts = [[rng.choice([1, 2]) for _ in range(rng.randint(1, 12))] for _ in range(rng.randint(2, 9))]
        cache, handles = make(prompts, page_size)
        together = np.zeros((len(handles), len(handles)), np.int64)
        for group in cache.find_groups(handles):
            together[np.ix_(group.rows, group.rows)] += group.end - group.begin
        for a, b in combinations(range(len(handles)), 2):
            shorter, longer = sorted((handles[a].get_matched_pages(), handles[b].get_matched_pages()), key=len)
            num_common = int(np.logical_and.accumulate(shorter == longer[: len(shorter)]).sum())
            assert together[a, b] == num_common * page_size
