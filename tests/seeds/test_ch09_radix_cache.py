"""The tests of the cache alone that the chapter on the radix cache prints, unchanged, with the helpers they call."""

import pytest
import torch

from minisgl.core import Context, reset_global_ctx, set_global_ctx
from minisgl.kvcache.radix_cache import RadixPrefixCache


@pytest.fixture(autouse=True)
def _global_page_size():
    set_global_ctx(Context(page_size=1))
    yield
    reset_global_ctx()


def _cache():
    return RadixPrefixCache(torch.device("cpu"))


def t(*xs):
    return torch.tensor(xs, dtype=torch.int32)


def test_lock_protects_from_eviction_and_lru_order():
    c = _cache()
    c.insert_prefix(t(1, 2, 3), t(10, 11, 12))
    c.insert_prefix(t(7, 8), t(20, 21))
    c.insert_prefix(t(4, 5), t(30, 31))
    handle = c.match_prefix(t(7, 8)).cuda_handle  # [7, 8] was just visited
    c.lock_handle(handle)
    assert c.size_info == (5, 2)
    evicted = c.evict(3)  # the locked [7, 8] cannot be evicted, and of the other two [1, 2, 3] has gone unused longest
    assert evicted.tolist() == [10, 11, 12]
    c.lock_handle(handle, unlock=True)
    assert c.evict(2).tolist() == [30, 31]  # once unlocked, [4, 5] has gone unused longer than [7, 8]
    c.check_integrity()
