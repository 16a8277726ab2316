"""dfs-weight: the tree is walked depth first, heavier branches first."""

from __future__ import annotations

import numpy as np
import torch
from support.waiting import make_waiting

from minisgl.kvcache import NaivePrefixCache, RadixPrefixCache
from minisgl.kvcache.base import BasePrefixCache
from minisgl.kvcache.types import Watch
from minisgl.scheduler.ordering import DepthFirstWeight, RankedOrder
from minisgl.scheduler.ranking import rank_depth_first
from minisgl.scheduler.waiting import Waiting

CACHED = ["abcd", "abxy", "k"]


def to_ids(text: str) -> np.ndarray:
    return np.array([ord(letter) for letter in text], np.int32)


def cache_of(texts: list[str]) -> RadixPrefixCache:
    cache, num_pages = RadixPrefixCache(torch.device("cpu"), 1), 0
    for text in texts:
        cache.insert_pages(to_ids(text), np.arange(num_pages, num_pages + len(text), dtype=np.int32))
        num_pages += len(text)
    return cache


def ranked(cache: BasePrefixCache, texts: list[str]) -> list[str]:
    waiting = [make_waiting(number) for number in range(len(texts))]
    for each, text in zip(waiting, texts, strict=True):
        each.watch = cache.watch(to_ids(text))
    rank_depth_first(waiting)
    return [texts[each.number] for each in sorted(waiting, key=lambda each: each.rank)]


def test_the_branch_for_which_most_wait_is_first() -> None:
    assert ranked(cache_of(CACHED), ["k1", "abx", "abc", "abxy2"]) == ["abx", "abxy2", "abc", "k1"]


def test_equally_heavy_branches_go_by_their_oldest_request() -> None:
    assert ranked(cache_of(CACHED), ["k1", "abc"]) == ["k1", "abc"]
    assert ranked(cache_of(CACHED), ["abc", "k1"]) == ["abc", "k1"]


def test_those_who_match_further_come_before_those_who_branch_off() -> None:
    assert ranked(cache_of(CACHED), ["ab!", "abcd1", "none", "abx"]) == ["abcd1", "abx", "ab!", "none"]


def test_without_a_tree_the_order_is_that_of_arrival() -> None:
    assert ranked(NaivePrefixCache(torch.device("cpu"), 1), ["b", "a", "c"]) == ["b", "a", "c"]


def test_only_the_oldest_are_ranked_together_and_the_others_follow_by_age() -> None:
    """A heavy branch far back in a long queue waits until the queue has moved on: the walk is bounded."""
    cache, size = cache_of(CACHED), RankedOrder.RANKED
    texts = ["k1", *(["abxy"] * (size - 1)), *(["k2"] * 2 * size)]
    order = waiting_in_order(cache, texts)
    numbers = []
    while len(order):
        numbers.append(order.first().number)
        order.remove(order.first())
    assert numbers[: size // 2] == list(range(1, size // 2 + 1))
    assert sorted(numbers) == list(range(len(texts)))


def waiting_in_order(cache: RadixPrefixCache, texts: list[str]) -> RankedOrder:
    order = RankedOrder(DepthFirstWeight(), cache.expect)
    for number, text in enumerate(texts):
        each: Waiting = make_waiting(number)
        each.watch = cache.watch(to_ids(text))
        order.add(each)
    return order


def test_ranking_anew_marks_only_the_places_in_the_cache_that_change() -> None:
    cache, calls = cache_of(CACHED), []

    def expect(watch: Watch, expected: bool, order: int | None) -> None:
        calls.append((watch, expected))
        cache.expect(watch, expected, order)

    order = RankedOrder(DepthFirstWeight(), expect)
    for number in range(9):
        each = make_waiting(number)
        each.watch = cache.watch(to_ids(f"k{number}"))
        order.add(each)
        order.widen()
    order.first()
    for number in range(8):
        calls.clear()
        assert order.first().number == number
        assert calls == []
        order.remove(order.first())
