"""Namespaces and flushes of the radix cache: who finds what, and when pages come back."""

import numpy as np
import pytest
import torch

from minisgl.kvcache import PUBLIC, Namespace, RadixPrefixCache

PROMPT = np.arange(64, dtype=np.int32)


def make_cache(page_size=1):
    return RadixPrefixCache(torch.device("cpu"), page_size)


def pages(first, count=64):
    return np.arange(first, first + count, dtype=np.int32)


def hit_len(cache, namespace):
    return cache.match_prefix(PROMPT, namespace).cuda_handle.cached_len


def test_r9_parts_of_a_namespace_are_never_mixed_up():
    """Other servers glue them to one string: ("ab", "c") then finds what ("a", "bc") left."""
    cache = make_cache()
    parts = [("", ""), ("x", ""), ("", "x"), ("a", "bc"), ("ab", "c"), ("abc", "")]
    for i, part in enumerate(parts):
        namespace = Namespace(*part)
        assert hit_len(cache, namespace) == 0
        cache.insert_pages(PROMPT, pages(64 * i), namespace)
        found = cache.match_prefix(PROMPT, namespace).cuda_handle
        assert found.get_matched_pages().tolist() == pages(64 * i).tolist()
    assert len(np.unique(cache.cached_pages())) == 6 * 64
    cache.check_integrity()


def test_a_namespace_that_is_asked_for_or_emptied_leaves_nothing_behind():
    cache = make_cache(page_size=4)
    for i in range(100):
        namespace = Namespace(f"salt {i}")
        assert hit_len(cache, namespace) == 0
        cache.insert_pages(PROMPT[:3], pages(0, 0), namespace)
    assert len(cache._tree.forest.roots()) == 1
    cache.insert_pages(PROMPT, pages(0, 16), Namespace("salt"))
    assert len(cache._tree.forest.roots()) == 2
    assert len(cache.evict_pages(16)) == 16
    assert len(cache._tree.forest.roots()) == 1
    cache.check_integrity()


def test_the_oldest_leaf_goes_first_whoever_left_it():
    cache = make_cache()
    for i, salt in enumerate("ab"):
        cache.insert_pages(PROMPT, pages(64 * i), Namespace(salt))
    assert hit_len(cache, Namespace("a")) == 64
    assert cache.evict_pages(1).tolist() == pages(64).tolist()


def test_after_a_flush_everybody_starts_cold_and_readers_keep_their_pages():
    cache = make_cache()
    cache.insert_pages(PROMPT, pages(0))
    cache.insert_pages(PROMPT, pages(64), Namespace("a"))
    first, second = (cache.match_prefix(PROMPT[:n]).cuda_handle for n in (10, 20))
    for handle in (first, second):
        cache.lock_handle(handle)
    assert sorted(cache.flush()) == [*range(20, 128)]
    assert cache.size_info == (0, 20)
    assert [hit_len(cache, namespace) for namespace in (PUBLIC, Namespace("a"))] == [0, 0]
    assert second.get_matched_pages().tolist() == [*range(20)]
    cache.insert_pages(PROMPT, pages(200))
    assert hit_len(cache, PUBLIC) == 64
    cache.check_integrity()
    cache.lock_handle(second, unlock=True)
    assert sorted(cache.reclaim()) == [*range(10, 20)]
    cache.lock_handle(first, unlock=True)
    assert sorted(cache.cached_pages()) == [*range(10), *range(200, 264)]
    assert sorted(cache.reclaim()) == [*range(10)]
    assert cache.size_info == (64, 0)
    cache.check_integrity()


def test_pages_of_a_flushed_reader_are_never_evicted_under_it():
    cache = make_cache()
    handle = cache.insert_pages(PROMPT, pages(0)).handle
    cache.lock_handle(handle)
    cache.flush()
    with pytest.raises(AssertionError, match="0 evictable, 64 protected"):
        cache.evict_pages(1)


def test_the_empty_match_from_before_a_flush_can_still_be_given_up():
    cache = make_cache()
    handle = cache.match_prefix(PROMPT).cuda_handle
    cache.lock_handle(handle)
    cache.flush()
    cache.lock_handle(handle, unlock=True)
    assert len(cache.reclaim()) == 0
    cache.check_integrity()
