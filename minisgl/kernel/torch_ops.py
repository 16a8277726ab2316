"""Every operation in plain PyTorch, on any device: the reference that faster kernels are tested against."""

from __future__ import annotations

import torch


def fast_compare_key(x: torch.Tensor, y: torch.Tensor) -> int:
    """How many leading elements two one-dimensional integer tensors share: the index of the first difference."""
    n = min(len(x), len(y))
    differs = (x[:n] != y[:n]).nonzero()
    return int(differs[0, 0]) if len(differs) > 0 else n


def store_cache(
    k_cache: torch.Tensor, v_cache: torch.Tensor, indices: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> None:
    """Write k, v [T, H, D] to slots `indices` [T] of k_cache, v_cache [slots, H, D], in place."""
    k_cache.index_copy_(0, indices.long(), k)
    v_cache.index_copy_(0, indices.long(), v)
