"""What becomes of a projection before attention: in one kernel where there are kernels, else one by one."""

from __future__ import annotations

import torch

from minisgl.kernel import cpu_ops, triton
from minisgl.kernel.torch_ops import apply_rotary, rms_norm, store_cache


def rotate_and_store(
    qkv: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    num_qo_heads: int,
    num_kv_heads: int,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    out_loc: torch.Tensor,
    q_weight: torch.Tensor | None = None,
    k_weight: torch.Tensor | None = None,
    eps: float = 0.0,
) -> None:
    """Make a projection's q and k ready for attention, in place, and store k and v.

    qkv [T, Hq + 2 Hkv, D]: every head of q and k is normalised first, if there are weights [D] for that, then turns as
    by `apply_rotary`; k and v go to slots out_loc [T] int32 as by `store_cache`.
    """
    if triton.can_take(qkv):
        in_one = triton.operation("rotary", "rotate_and_store")
        in_one(qkv, cos, sin, num_qo_heads, num_kv_heads, k_cache, v_cache, out_loc, q_weight, k_weight, eps)
        return
    if cpu_ops.can_take(qkv):
        heads = num_qo_heads, num_kv_heads
        cpu_ops.rotate_and_store(qkv, cos, sin, *heads, k_cache, v_cache, out_loc, q_weight, k_weight, eps)
        return
    q, k, v = qkv.split_with_sizes([num_qo_heads, num_kv_heads, num_kv_heads], dim=1)
    if q_weight is not None and k_weight is not None:
        q.copy_(rms_norm(q, q_weight, eps))
        k.copy_(rms_norm(k, k_weight, eps))
    apply_rotary(qkv, cos, sin, num_qo_heads + num_kv_heads)
    store_cache(k_cache, v_cache, out_loc, k, v)
