"""The KV pool: shapes, views, stores and sizes."""

from __future__ import annotations

import pytest
import torch

from minisgl.kernel import store_cache
from minisgl.kvcache.pool import MHAKVCache

CPU = torch.device("cpu")


def make_pool(num_pages: int = 5, page_size: int = 4, dtype: torch.dtype = torch.float32) -> MHAKVCache:
    return MHAKVCache(
        num_kv_heads=2, num_layers=3, head_dim=8, num_pages=num_pages, page_size=page_size, dtype=dtype, device=CPU
    )


def test_caches_are_views_by_slot():
    pool = make_pool()
    assert pool.k_cache(0).shape == pool.v_cache(2).shape == (20, 2, 8)
    pool.k_cache(1)[7] = 3.0
    assert (pool.k_cache(1)[7] == 3.0).all()
    pool.v_cache(1)[7] = 5.0
    assert (pool.k_cache(1)[7] == 3.0).all()


def test_a_store_reaches_its_layer_and_slots_only():
    pool = make_pool(dtype=torch.bfloat16)
    for layer_id in range(3):
        pool.k_cache(layer_id).zero_()
        pool.v_cache(layer_id).zero_()
    k, v = torch.randn(2, 2, 8).bfloat16(), torch.randn(2, 2, 8).bfloat16()
    store_cache(pool.k_cache(1), pool.v_cache(1), torch.tensor([19, 0], dtype=torch.int32), k, v)
    assert torch.equal(pool.k_cache(1)[[19, 0]], k)
    assert torch.equal(pool.v_cache(1)[[19, 0]], v)
    assert not pool.k_cache(1)[1:19].any()
    assert not any(pool.k_cache(layer_id).any() or pool.v_cache(layer_id).any() for layer_id in (0, 2))


def test_bytes_per_page_times_pages_is_what_the_caches_hold():
    pool = make_pool(num_pages=6, dtype=torch.bfloat16)
    held = sum(cache(layer_id).nbytes for cache in (pool.k_cache, pool.v_cache) for layer_id in range(3))
    assert MHAKVCache.bytes_per_page(2, 3, 8, 4, torch.bfloat16) * 6 == held


@pytest.mark.parametrize(("num_pages", "page_size"), [(0, 4), (-1, 4), (5, 0)])
def test_sizes_below_one_are_a_value_error_with_the_number(num_pages: int, page_size: int):
    name, value = ("num_pages", num_pages) if num_pages < 1 else ("page_size", page_size)
    with pytest.raises(ValueError, match=f"{name}={value} must be at least 1"):
        make_pool(num_pages, page_size)


def test_dtype_and_device_are_the_buffers():
    pool = make_pool(dtype=torch.bfloat16)
    assert pool.dtype == torch.bfloat16
    assert pool.device == CPU
