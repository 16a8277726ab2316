import numpy as np
import pytest
import torch

from minisgl.core import Context, reset_global_ctx, set_global_ctx
from minisgl.kvcache import NaivePrefixCache, RadixPrefixCache, create_prefix_cache

CPU = torch.device("cpu")
IDS = np.arange(8, dtype=np.int32)


def test_the_naive_cache_never_keeps_what_is_inserted():
    cache = create_prefix_cache(CPU, "naive", page_size=4)
    inserted = cache.insert_pages(IDS, np.array([5, 6], np.int32))
    assert (inserted.cached_len, inserted.handle.cached_len) == (0, 0)
    assert cache.insert_prefix(IDS, IDS).handle.cached_len == 0
    assert cache.size_info == (0, 0)
    assert len(cache.cached_pages()) == 0
    matched = cache.match_prefix(IDS).cuda_handle
    assert matched.cached_len == 0
    assert matched.get_matched_pages().tolist() == matched.get_matched_indices().tolist() == []


def test_locks_on_the_naive_cache_hold_nothing():
    cache = NaivePrefixCache(CPU, 1)
    handle = cache.match_prefix(IDS).cuda_handle
    cache.lock_handle(handle)
    cache.reset()
    cache.lock_handle(handle, unlock=True)
    cache.check_integrity()
    assert cache.size_info.total_size == 0


def test_the_naive_cache_has_nothing_to_evict():
    cache = NaivePrefixCache(CPU, 1)
    assert cache.evict(0).tolist() == cache.evict_pages(0).tolist() == []
    with pytest.raises(AssertionError, match="cannot evict 1 tokens"):
        cache.evict(1)
    with pytest.raises(AssertionError, match="cannot evict 2 pages"):
        cache.evict_pages(2)


def test_caches_say_whether_requests_share_prefixes():
    assert not NaivePrefixCache.shares
    assert RadixPrefixCache.shares


def test_the_page_size_comes_from_the_global_context_if_none_is_given():
    set_global_ctx(Context(page_size=16))
    try:
        assert [create_prefix_cache(CPU, name).page_size for name in ("naive", "radix")] == [16, 16]
        assert create_prefix_cache(CPU, "radix", 4).page_size == 4
    finally:
        reset_global_ctx()
    with pytest.raises(RuntimeError, match="no global context"):
        create_prefix_cache(CPU, "radix")


def test_bad_cache_options_are_value_errors():
    with pytest.raises(ValueError, match="unknown prefix cache 'tree'; known: naive, radix"):
        create_prefix_cache(CPU, "tree", 1)
    with pytest.raises(ValueError, match="page_size=0 must be at least 1"):
        create_prefix_cache(CPU, "radix", 0)
