from __future__ import annotations

from collections import OrderedDict
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minisgl.core import CAPACITY_FACTORS
from minisgl.kvcache.capacity_curve import CapacityCurve
from minisgl.kvcache.types import Namespace
from minisgl.utils.arrays import Int32Array

AT_ONE = CAPACITY_FACTORS.index(1)


class PlainLru:
    """Whole pages by recency, each named by a number that stands for its whole prefix; a path's start goes last."""

    numbers: ClassVar[dict[tuple[int, ...], int]] = {}  # by the number before it and the tokens of the page

    def __init__(self, num_pages: int, page_size: int) -> None:
        self._num_pages, self._page_size = num_pages, page_size
        self._pages = OrderedDict[int, None]()

    def look_up(self, prompt: list[int]) -> int:
        """Tokens found; the last one is not looked up."""
        is_there = [page in self._pages for page in self._path(prompt[:-1])]
        return self._page_size * [*is_there, False].index(False)

    def store(self, ids: list[int]) -> None:
        for page in reversed(self._path(ids)):
            self._pages[page] = None
            self._pages.move_to_end(page)
        while len(self._pages) > self._num_pages:
            self._pages.popitem(last=False)

    def _path(self, ids: list[int]) -> list[int]:
        size, number, path = self._page_size, 0, []
        for end in range(size, len(ids) + 1, size):
            number = self.numbers.setdefault((number, *ids[end - size : end]), len(self.numbers) + 1)
            path.append(number)
        return path


def array(ids: list[int]) -> Int32Array:
    return np.array(ids, np.int32)


Paths = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=1, max_size=40)


@given(paths=Paths, num_pages=st.integers(2, 8), page_size=st.integers(1, 3), data=st.data())
def test_where_every_page_is_followed_it_is_what_pools_of_these_sizes_hit(
    paths: list[list[int]], num_pages: int, page_size: int, data: st.DataObject
):
    num_pages *= 2  # so that half of them are whole pages
    pools = [PlainLru(int(factor * num_pages), page_size) for factor in CAPACITY_FACTORS]
    curve = CapacityCurve(num_pages, page_size, stride=1)
    hits = [0] * len(pools)
    for path in paths:
        prompt = path[: data.draw(st.integers(1, len(path)))]
        found = [pool.look_up(prompt) for pool in pools]
        curve.looked_up(array(prompt), found[AT_ONE])
        curve.stored(array(path))
        for pool in pools:
            pool.store(prompt)
            pool.store(path)
        hits = [total + tokens for total, tokens in zip(hits, found, strict=True)]
        assert curve.hits == tuple(hits)


@given(paths=Paths, max_followed=st.integers(8, 64), data=st.data())
def test_a_larger_pool_never_hits_less_and_no_total_falls(
    paths: list[list[int]], max_followed: int, data: st.DataObject
):
    curve = CapacityCurve(16, max_followed=max_followed, stride=2)
    before = curve.hits
    for path in paths:
        curve.looked_up(array(path), data.draw(st.integers(0, len(path) - 1)))
        assert list(curve.hits) == sorted(curve.hits)
        assert all(new >= old for new, old in zip(curve.hits, before, strict=True))
        before = curve.hits


def test_at_the_size_that_there_is_it_says_what_the_cache_hit():
    curve = CapacityCurve(8)
    for hit_len in (0, 3, 1):
        curve.looked_up(array([1, 2, 3, 4]), hit_len)
    assert (curve.hits[AT_ONE], curve.queried) == (4, 12)


def test_it_follows_no_more_prefixes_than_it_may():
    curve = CapacityCurve(1000, stride=1, max_followed=100)
    for _, prompt in zip(range(100), random_prompts(), strict=False):
        curve.looked_up(prompt, 0)
        curve.stored(prompt)
        assert curve.num_followed <= 100
    assert curve.num_followed == 100


def test_of_large_pools_a_sample_of_prefixes_is_followed():
    whole, sampled = CapacityCurve(1000, stride=1), CapacityCurve(1000, stride=1, max_followed=2000)
    for _, prompt in zip(range(20), random_prompts(), strict=False):
        for curve in (whole, sampled):
            curve.looked_up(prompt, 0)
    assert sampled.num_followed == pytest.approx(whole.num_followed / 4, rel=0.2)


def random_prompts(seed: int = 0):
    rng = np.random.default_rng(seed)
    while True:
        yield rng.integers(0, 1000, rng.integers(10, 200), np.int32)


def popular_prompts(num: int) -> list[list[int]]:
    """Three beginnings that all share, on them 300 documents of unequal popularity, and a question of one's own."""
    rng = np.random.default_rng(7)
    beginnings = rng.integers(0, 1000, (3, 100)).tolist()
    documents = [rng.integers(0, 1000, rng.integers(20, 120)).tolist() for _ in range(300)]
    weights = 1 / np.arange(1, 301) ** 0.9
    chosen = rng.choice(300, num, p=weights / weights.sum()).tolist()
    own = [rng.integers(0, 1000, rng.integers(5, 25)).tolist() for _ in chosen]
    return [[*beginnings[which % 3], *documents[which], *end] for which, end in zip(chosen, own, strict=True)]


@pytest.mark.parametrize(("max_followed", "bound"), [(8192, 0.01), (512, 0.03)])
def test_a_sample_is_within_its_bound_of_what_the_pools_hit(max_followed: int, bound: float):
    num_pages = 3000
    pools = [PlainLru(int(factor * num_pages), 1) for factor in CAPACITY_FACTORS]
    curve, hits = CapacityCurve(num_pages, max_followed=max_followed), [0] * len(pools)
    for prompt in popular_prompts(800):
        found = [pool.look_up(prompt) for pool in pools]
        curve.looked_up(array(prompt), found[AT_ONE])
        for index, pool in enumerate(pools):
            hits[index] += found[index]
            pool.store(prompt)
    rates, wanted = np.array(curve.hits) / curve.queried, np.array(hits) / curve.queried
    assert wanted[-1] - wanted[0] > 0.15, "all pools hit about as much"
    assert np.abs(rates - wanted).max() < bound


def test_namespaces_share_nothing():
    curve = CapacityCurve(8, stride=1)
    curve.looked_up(array([1, 2, 3]), 0, Namespace("a"))
    curve.looked_up(array([1, 2, 3]), 0, Namespace("b"))
    assert curve.hits == (0.0,) * 5


def test_after_everything_was_purged_nothing_would_be_hit():
    curve = CapacityCurve(8, stride=1)
    curve.looked_up(array([1, 2, 3]), 0)
    curve.forget()
    assert curve.num_followed == 0
    curve.looked_up(array([1, 2, 3]), 0)
    assert curve.hits == (0.0,) * 5
