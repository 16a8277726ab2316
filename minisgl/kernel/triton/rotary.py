"""Rotation by position, the store to the KV pool, and both with the norms of q and k in one pass over a projection.

Positions and slots are aligned in one step and not in the next: that is no reason to compile for each.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from minisgl.kernel.triton.launch import begin_next, programmatic, wait_for_last

# Heads of a token that a program works on.
HEADS = 8


def rotary_turns(
    inv_freq: torch.Tensor, positions: torch.Tensor, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    tokens, half = positions.shape[0], inv_freq.shape[0]
    cos, sin = (torch.empty((tokens, 1, 2 * half), dtype=dtype, device=positions.device) for _ in range(2))
    if tokens > 0:
        _rotary_turns[(tokens,)](
            *(positions, inv_freq, cos, sin, half, triton.next_power_of_2(half), programmatic()),
            num_warps=1,
            launch_pdl=programmatic(),
        )
    return cos, sin


def apply_rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, num_heads: int) -> None:
    _launch(x, cos, sin, num_heads, num_heads, None, None, 0.0, None)


def store_cache(
    k_cache: torch.Tensor, v_cache: torch.Tensor, indices: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> None:
    tokens, heads, dim = k.shape
    assert _has_dense_heads(k), k.stride()
    assert _has_dense_heads(v), v.stride()
    assert k_cache.is_contiguous(), k_cache.stride()
    assert v_cache.is_contiguous(), v_cache.stride()
    size = heads * dim
    if tokens > 0:
        _store_cache[(tokens,)](
            *(k_cache, v_cache, indices, k, v, k.stride(0), v.stride(0), size),
            *(triton.next_power_of_2(size), programmatic()),
            num_warps=4,
            launch_pdl=programmatic(),
        )


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
    assert qkv.shape[1] == num_qo_heads + 2 * num_kv_heads, (qkv.shape, num_qo_heads, num_kv_heads)
    assert k_cache.is_contiguous(), k_cache.stride()
    assert v_cache.is_contiguous(), v_cache.stride()
    _launch(qkv, cos, sin, num_qo_heads, qkv.shape[1], q_weight, k_weight, eps, (k_cache, v_cache, out_loc))


def _has_dense_heads(x: torch.Tensor) -> bool:
    """Whether x[i] of x [T, H, D] is one run of memory for every i."""
    return x.stride(2) == 1 and (x.stride(1) == x.shape[2] or x.shape[1] == 1)


def _launch(
    x: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    num_qo_heads: int,
    num_heads: int,
    q_weight: torch.Tensor | None,
    k_weight: torch.Tensor | None,
    eps: float,
    store: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None,
) -> None:
    """Over the first num_heads heads of x: q heads, then, if there is something to store, k and v heads."""
    tokens, _, dim = x.shape
    assert _has_dense_heads(x), x.stride()
    if tokens == 0:
        return
    k_cache, v_cache, out_loc = store or (x, x, x)
    has_norm = q_weight is not None and k_weight is not None
    _rotate_and_store[(tokens, triton.cdiv(num_heads, HEADS))](
        *(x, cos, sin, k_cache, v_cache, out_loc, q_weight, k_weight, x.stride(0), eps),
        *(num_qo_heads, num_heads, dim, triton.next_power_of_2(dim // 2), HEADS, has_norm, store is not None),
        programmatic(),
        num_warps=4,
        launch_pdl=programmatic(),
    )


@triton.jit(do_not_specialize_on_alignment=["positions_ptr"])
def _rotary_turns(
    positions_ptr, inv_freq_ptr, cos_ptr, sin_ptr, HALF: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr
):
    begin_next(PDL)
    token = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    mask = columns < HALF
    inv_freq = tl.load(inv_freq_ptr + columns, mask=mask, other=0.0)
    wait_for_last(PDL)
    angles = tl.load(positions_ptr + token).to(tl.float32) * inv_freq
    cos, sin = tl.cos(angles), tl.sin(angles)
    first = token * 2 * HALF + columns
    tl.store(cos_ptr + first, cos.to(cos_ptr.dtype.element_ty), mask=mask)
    tl.store(cos_ptr + first + HALF, cos.to(cos_ptr.dtype.element_ty), mask=mask)
    tl.store(sin_ptr + first, (-sin).to(sin_ptr.dtype.element_ty), mask=mask)
    tl.store(sin_ptr + first + HALF, sin.to(sin_ptr.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize_on_alignment=["slots_ptr"])
def _store_cache(
    k_cache_ptr,
    v_cache_ptr,
    slots_ptr,
    k_ptr,
    v_ptr,
    k_stride,
    v_stride,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    begin_next(PDL)
    token = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    wait_for_last(PDL)
    slot = tl.load(slots_ptr + token).to(tl.int64)
    mask = (columns < SIZE) & (slot >= 0)
    tl.store(k_cache_ptr + slot * SIZE + columns, tl.load(k_ptr + token * k_stride + columns, mask=mask), mask=mask)
    tl.store(v_cache_ptr + slot * SIZE + columns, tl.load(v_ptr + token * v_stride + columns, mask=mask), mask=mask)


@triton.jit(do_not_specialize_on_alignment=["slots_ptr"])
def _rotate_and_store(
    x_ptr,
    cos_ptr,
    sin_ptr,
    k_cache_ptr,
    v_cache_ptr,
    slots_ptr,
    q_weight_ptr,
    k_weight_ptr,
    token_stride,
    eps,
    NUM_QO_HEADS: tl.constexpr,
    NUM_HEADS: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    HEADS: tl.constexpr,
    HAS_NORM: tl.constexpr,
    STORES: tl.constexpr,
    PDL: tl.constexpr,
):
    """HEADS heads of one token, of which the first NUM_QO_HEADS are q, half of the rest k and half v."""
    begin_next(PDL)
    token = tl.program_id(0).to(tl.int64)
    heads = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    num_kv_heads: tl.constexpr = (NUM_HEADS - NUM_QO_HEADS) // 2
    half: tl.constexpr = DIM // 2
    columns = tl.arange(0, BLOCK)
    is_q, is_v = heads < NUM_QO_HEADS, heads >= NUM_QO_HEADS + num_kv_heads
    mask = (heads < NUM_HEADS)[:, None] & (columns < half)[None, :]
    offsets = x_ptr + token * token_stride + heads[:, None] * DIM + columns[None, :]
    if HAS_NORM:  # weights are few, and the same for all programs: read from the nearest cache
        of_q, of_k = mask & is_q[:, None], mask & ~is_q[:, None]
        weight_columns = tl.broadcast_to(columns[None, :], (HEADS, BLOCK))
        first_weight = tl.load(q_weight_ptr + weight_columns, mask=of_q, other=0.0).to(tl.float32)
        first_weight += tl.load(k_weight_ptr + weight_columns, mask=of_k, other=0.0).to(tl.float32)
        second_weight = tl.load(q_weight_ptr + half + weight_columns, mask=of_q, other=0.0).to(tl.float32)
        second_weight += tl.load(k_weight_ptr + half + weight_columns, mask=of_k, other=0.0).to(tl.float32)
    wait_for_last(PDL)
    raw_first, raw_second = tl.load(offsets, mask=mask, other=0.0), tl.load(offsets + half, mask=mask, other=0.0)
    first, second = raw_first.to(tl.float32), raw_second.to(tl.float32)
    if HAS_NORM:
        scale = tl.rsqrt((tl.sum(first * first, axis=1) + tl.sum(second * second, axis=1)) / DIM + eps)[:, None]
        # Rounded here too: so does whoever norms first and then turns.
        first = (first * scale * first_weight).to(x_ptr.dtype.element_ty).to(tl.float32)
        second = (second * scale * second_weight).to(x_ptr.dtype.element_ty).to(tl.float32)
    angles = token * DIM + columns
    inside = columns < half
    cos = tl.load(cos_ptr + angles, mask=inside, other=0.0).to(tl.float32)[None, :]
    sin = tl.load(sin_ptr + half + angles, mask=inside, other=0.0).to(tl.float32)[None, :]
    turned_first = (first * cos - second * sin).to(x_ptr.dtype.element_ty)
    turned_second = (second * cos + first * sin).to(x_ptr.dtype.element_ty)
    turns = mask & ~is_v[:, None] if STORES else mask
    tl.store(offsets, turned_first, mask=turns)
    tl.store(offsets + half, turned_second, mask=turns)
    if STORES:
        slot = tl.load(slots_ptr + token).to(tl.int64)
        row = slot * num_kv_heads * DIM + columns[None, :]
        k_cells = k_cache_ptr + row + (heads - NUM_QO_HEADS)[:, None] * DIM
        is_k = mask & (~is_q & ~is_v)[:, None] & (slot >= 0)
        tl.store(k_cells, turned_first, mask=is_k)
        tl.store(k_cells + half, turned_second, mask=is_k)
        v_cells = v_cache_ptr + row + (heads - NUM_QO_HEADS - num_kv_heads)[:, None] * DIM
        is_stored_v = mask & is_v[:, None] & (slot >= 0)
        tl.store(v_cells, raw_first, mask=is_stored_v)
        tl.store(v_cells + half, raw_second, mask=is_stored_v)
