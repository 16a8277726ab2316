"""Watches of the radix cache: waiting prompts know how much of them is cached, whatever happens to the tree."""

import numpy as np
import pytest
import torch

from minisgl.kvcache import NaivePrefixCache, Namespace, RadixPrefixCache

SALT = Namespace("a")


def ids(*xs):
    return np.array(xs, np.int32)


@pytest.fixture
def cache():
    """[1 1 2 2 3 3] and [1 1 2 2 4 4], two tokens a page."""
    cache = RadixPrefixCache(torch.device("cpu"), page_size=2)
    cache.insert_pages(ids(1, 1, 2, 2, 3, 3), ids(0, 1, 2))
    cache.insert_pages(ids(1, 1, 2, 2, 4, 4), ids(0, 1, 3))
    return cache


def test_a_watch_starts_at_what_is_cached_and_refreshes_and_splits_nothing(cache):
    watches = [cache.watch(tokens) for tokens in (ids(1, 1, 9, 9), ids(1, 1, 2, 2, 3, 3, 3), ids(7, 7), ids(1))]
    assert [watch.cached_len for watch in watches] == [2, 6, 0, 0]
    assert len(cache.root_node.children) == 1
    assert cache.evict_pages(1).tolist() == [2]
    cache.check_integrity()


def test_a_watch_goes_on_when_what_it_needs_is_inserted_and_it_is_its_turn(cache):
    watches = [cache.watch(ids(1, 1, 2, 2, 5, 5, 6, 6, n, n)) for n in range(3)]
    cache.insert_pages(ids(1, 1, 2, 2, 5, 5, 6, 6, 2, 2), ids(0, 1, 4, 5, 6))
    assert [watch.cached_len for watch in watches] == [4, 4, 4]
    assert cache.advance_watches(2) == watches[:2]
    assert [watch.cached_len for watch in watches] == [8, 8, 4]
    assert cache.advance_watches(2) == watches[2:]
    assert watches[2].cached_len == 10
    assert cache.advance_watches(2) == []
    cache.check_integrity()


def test_a_watch_falls_at_once_with_what_is_evicted_trimmed_or_purged(cache):
    watch = cache.watch(ids(1, 1, 2, 2, 3, 3))
    assert cache.evict_pages(1).tolist() == [2]
    assert watch.cached_len == 4
    cache.evict_pages(2, trim=True)
    assert watch.cached_len == 2
    cache.purge()
    assert watch.cached_len == 0
    assert cache.advance_watches(9) == [watch]
    cache.insert_pages(ids(1, 1, 2, 2, 3, 3), ids(0, 1, 2))
    assert cache.advance_watches(9) == [watch]
    assert watch.cached_len == 6
    cache.check_integrity()


def test_a_watch_that_ends_within_a_node_goes_on_from_there_after_a_split(cache):
    watch = cache.watch(ids(1, 1, 8, 8))
    cache.match_prefix(ids(1, 1, 5, 5))
    cache.insert_pages(ids(1, 1, 8, 8), ids(0, 7))
    cache.advance_watches(9)
    assert watch.cached_len == 4
    cache.check_integrity()


def test_a_watch_that_was_noted_twice_goes_on_once():
    cache = RadixPrefixCache(torch.device("cpu"), page_size=1)
    cache.insert_pages(ids(1), ids(0))
    watch = cache.watch(ids(1, 2, 5))
    cache.insert_pages(ids(1, 2, 9), ids(0, 1, 2))
    cache.evict_pages(2)
    cache.insert_pages(ids(1, 2, 9), ids(0, 1, 2))
    cache.insert_pages(ids(1, 2, 9, 5), ids(0, 1, 2, 3))
    assert cache.advance_watches(9) == [watch]
    assert watch.cached_len == 2


def test_an_insertion_notes_one_place_however_many_wait_there(cache):
    watches = [cache.watch(ids(1, 1, 9, 9, n, n)) for n in range(50)]
    cache.match_prefix(ids(1, 1, 9, 9))
    cache.insert_pages(ids(1, 1, 9, 9), ids(0, 4))
    assert len(cache._tree.watches._behind) == 1
    for watch in watches[10:]:
        cache.unwatch(watch)
    assert cache.advance_watches(9) == watches[:9]
    assert cache.advance_watches(9) == watches[9:10]
    assert cache.advance_watches(9) == []
    assert not cache._tree.watches._behind
    cache.check_integrity()


def test_a_place_that_was_noted_is_passed_over_when_what_was_inserted_is_gone(cache):
    watch = cache.watch(ids(1, 1, 2, 2, 5, 5))
    cache.insert_pages(ids(1, 1, 2, 2, 5, 5), ids(0, 1, 4))
    cache.purge(prefix=ids(1, 1, 2, 2, 5))
    assert cache.advance_watches(9) == []
    assert watch.cached_len == 4
    cache.insert_pages(ids(1, 1, 2, 2, 5, 5), ids(0, 1, 4))
    assert cache.advance_watches(9) == [watch]
    cache.check_integrity()


def test_what_is_not_watched_any_more_is_not_followed(cache):
    watch = cache.watch(ids(9, 9), SALT)
    cache.insert_pages(ids(9, 9), ids(8), SALT)
    cache.unwatch(watch)
    assert cache.advance_watches(9) == []
    cache.evict_pages(4)
    cache.check_integrity()


def test_a_namespace_is_kept_while_it_is_waited_for(cache):
    watch = cache.watch(ids(9, 9), SALT)
    cache.insert_pages(ids(9, 9), ids(8), SALT)
    cache.purge(SALT)
    cache.insert_pages(ids(9, 9), ids(8), SALT)
    assert cache.advance_watches(9) == [watch]
    assert watch.cached_len == 2
    cache.purge(SALT)
    cache.unwatch(watch)
    assert len(cache._tree.forest.roots()) == 1
    cache.check_integrity()


def test_what_an_expected_request_would_hit_goes_last(cache):
    watch = cache.watch(ids(1, 1, 2, 2, 3, 3))
    cache.expect(watch, expected=True)
    assert cache.evict_pages(1).tolist() == [3]
    cache.insert_pages(ids(1, 1, 2, 2, 4, 4), ids(0, 1, 3))
    cache.expect(watch, expected=False)
    assert cache.evict_pages(1).tolist() == [2]
    cache.check_integrity()


def test_a_node_that_is_waited_at_absorbs_nothing_and_is_not_lost():
    cache = RadixPrefixCache(torch.device("cpu"), page_size=1)
    cache.insert_pages(ids(1, 2, 3, 4), ids(0, 1, 2, 3))
    cache.match_prefix(ids(1, 2, 9))
    watch = cache.watch(ids(1, 2, 8))
    cache.match_prefix(ids(1, 2, 3, 4))
    cache.insert_pages(ids(1, 2, 8), ids(0, 1, 4))
    assert cache.advance_watches(9) == [watch]
    assert watch.cached_len == 3
    cache.check_integrity()


def test_the_naive_cache_has_nothing_to_follow():
    cache = NaivePrefixCache(torch.device("cpu"), 1)
    watch = cache.watch(ids(1, 2))
    cache.expect(watch, expected=True)
    cache.insert_pages(ids(1, 2), ids(0, 1))
    assert cache.advance_watches(9) == []
    assert (watch.cached_len, cache.probe(ids(1, 2)), cache.purge().tolist()) == (0, 0, [])
    cache.unwatch(watch)
