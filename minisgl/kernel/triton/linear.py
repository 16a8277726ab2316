"""A linear layer for a few rows: its weights are read once, at the speed of memory, and that is nearly the whole cost.

What a decoder has about a linear layer is done on the way, so that it takes few launches: the residual sum and the norm
before it, the gate of an MLP after it.

A program computes BLOCK_N features. It asks for its first DEPTH tiles of weights before it waits for the last kernel,
since nothing in a step writes those. One row is multiplied and added up in registers; more go to the tensor cores,
where every warp takes a slice of K.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from minisgl.kernel.triton.activation import silu
from minisgl.kernel.triton.launch import begin_next, programmatic, wait_for_last

# The rows that the tensor cores take at a time.
MAX_ROWS = 16


class Tiling(NamedTuple):
    """How a program goes over its weights: in tiles of [block_n, slices, block_k / slices], `depth` of them ahead."""

    block_n: int
    block_k: int
    slices: int
    depth: int
    num_warps: int


def tiling(rows: int, features: int, size: int) -> Tiling:
    """For x [rows, size] and weights [features, size].

    Some 64 KiB a processor are asked for at a time, by at least two programs where there are features enough.
    """
    if rows > 1:
        block_k = min(512, max(128, triton.next_power_of_2(size)))
        return Tiling(16 if features >= 4096 else 8, block_k, 8, 4 if size <= 2048 else 3, 8)
    if features >= 4096 and size <= 2048:
        block_n, block_k = 16, 512
    else:
        block_n, block_k = (8, 512) if features > 2048 else (4, 1024)
    block_k = min(block_k, triton.next_power_of_2(size))
    return Tiling(block_n, block_k, max(1, block_k // 256), 4, 4)


def small_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    gated: bool = False,
    residual: torch.Tensor | None = None,
    norm_weight: torch.Tensor | None = None,
    eps: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(the linear layer of norm(residual + x), residual + x), where all arguments but x and weight may lack.

    All of one dtype: x, residual [T, K], T <= MAX_ROWS, weight [N, K], bias [N], norm_weight [K]. gated: weight is
    [gate | up], and the result, [T, N / 2], silu(gate) * up.
    """
    rows, size = x.shape
    features = weight.shape[0]
    assert x.is_contiguous(), x.stride()
    assert weight.is_contiguous(), weight.stride()
    assert weight.shape[1] == size, (x.shape, weight.shape)
    total = x if residual is None else torch.empty_like(x)
    out = torch.empty((rows, features // 2 if gated else features), dtype=x.dtype, device=x.device)
    tiles = tiling(rows, features, size)
    _small_linear[(triton.cdiv(features, tiles.block_n),)](
        *(x, residual, norm_weight, weight, bias, out, total, rows, out.shape[1], eps, size),
        *(triton.next_power_of_2(rows), *tiles[:4], gated, programmatic()),
        num_warps=tiles.num_warps,
        num_stages=1,  # tiles are asked for ahead here, by hand
        launch_pdl=programmatic(),
    )
    return out, total


@triton.jit(do_not_specialize=["num_rows"])
def _small_linear(
    x_ptr,
    residual_ptr,
    norm_weight_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    sum_ptr,
    num_rows,
    num_outputs,
    eps,
    SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SLICES: tl.constexpr,
    DEPTH: tl.constexpr,
    GATED: tl.constexpr,
    PDL: tl.constexpr,
):
    """out = norm(residual + x) weight^T + bias, each of residual, norm and bias maybe None; sum = residual + x.

    GATED: weight is [gate | up], and out = silu(gate) * up; a tile's rows alternate between the two. The norm's scale
    is one number a row of x, and so the result is multiplied by it, not x: that takes one pass.
    """
    begin_next(PDL)
    NUM_TILES: tl.constexpr = (SIZE + BLOCK_K - 1) // BLOCK_K
    AHEAD: tl.constexpr = min(DEPTH, NUM_TILES)
    WIDTH: tl.constexpr = BLOCK_K // SLICES
    features = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    if GATED:
        weight_rows = tl.minimum(features // 2, num_outputs - 1) + features % 2 * num_outputs
    else:
        weight_rows = tl.minimum(features, num_outputs - 1)
    columns = tl.arange(0, SLICES)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]  # of a tile
    weights = weight_ptr + weight_rows.to(tl.int64)[:, None, None] * SIZE
    tiles = ()
    for i in tl.static_range(AHEAD):
        tiles = tiles + (_tile(weights, i * BLOCK_K + columns, SIZE, (i + 1) * BLOCK_K <= SIZE),)
    wait_for_last(PDL)

    if ROWS == 1:
        products = tl.zeros((BLOCK_N, WIDTH), tl.float32)
        squares = tl.zeros((SLICES, WIDTH), tl.float32)
    else:
        products = tl.zeros((SLICES, ROWS, BLOCK_N), tl.float32)
        squares = tl.zeros((SLICES, ROWS), tl.float32)
    for first in range(0, NUM_TILES, AHEAD):
        inputs = ()  # all are asked for before the first is needed
        for i in tl.static_range(AHEAD):
            at = (first + i) * BLOCK_K + columns
            inputs = inputs + (_inputs(x_ptr, residual_ptr, sum_ptr, num_rows, at, SIZE, ROWS),)
        for i in tl.static_range(AHEAD):
            at = (first + i) * BLOCK_K + columns
            x = inputs[i]
            if norm_weight_ptr is not None:
                x = x.to(tl.float32)
                squares += x * x if ROWS == 1 else tl.sum(x * x, axis=2)
                norm_weight = tl.load(norm_weight_ptr + at, mask=at < SIZE, other=0.0).to(tl.float32)
                x *= norm_weight if ROWS == 1 else norm_weight[:, None, :]
            if ROWS == 1:
                products += tl.sum(tiles[0].to(tl.float32) * x.to(tl.float32)[None, :, :], axis=1)
            else:
                weights_of_tile = tl.permute(tiles[0], (1, 2, 0))
                x = x.to(weight_ptr.dtype.element_ty)
                products = tl.dot(x, weights_of_tile, products, input_precision="ieee")
            if NUM_TILES > AHEAD:
                tiles = tiles[1:] + (_tile(weights, at + AHEAD * BLOCK_K, SIZE, False),)
            else:
                tiles = tiles[1:] + (tiles[0],)

    if ROWS == 1:
        y = tl.sum(products, axis=1)[None, :]
        square = tl.sum(tl.sum(squares, axis=1), axis=0)
    else:
        y = tl.sum(products, axis=0)
        square = tl.sum(squares, axis=0)[:, None]
    if norm_weight_ptr is not None:
        y *= tl.rsqrt(square / SIZE + eps)
    if bias_ptr is not None:
        y += tl.load(bias_ptr + weight_rows).to(tl.float32)[None, :]
    if GATED:
        gate, up = tl.split(tl.reshape(y, (ROWS, BLOCK_N // 2, 2)))
        outputs = tl.program_id(0) * (BLOCK_N // 2) + tl.arange(0, BLOCK_N // 2)
        y = silu(gate) * up
    else:
        outputs = features
    rows = tl.arange(0, ROWS)
    mask = (rows < num_rows)[:, None] & (outputs < num_outputs)[None, :]
    tl.store(out_ptr + rows[:, None] * num_outputs + outputs[None, :], y.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _tile(weights, columns, SIZE: tl.constexpr, IS_WHOLE: tl.constexpr):
    """Rows `weights` [N] of the weights at `columns` [S, W]: [N, S, W]. Nothing is read beyond a row's end."""
    if IS_WHOLE:
        return tl.load(weights + columns[None, :, :], eviction_policy="evict_first")
    inside = columns < SIZE
    return tl.load(weights + columns[None, :, :], mask=inside[None, :, :], other=0.0, eviction_policy="evict_first")


@triton.jit
def _inputs(x_ptr, residual_ptr, sum_ptr, num_rows, columns, SIZE: tl.constexpr, ROWS: tl.constexpr):
    """x, or residual + x, which the first program keeps: [S, W] of one row, [S, ROWS, W] of several."""
    if ROWS == 1:
        offsets, mask = columns, columns < SIZE
    else:
        rows = tl.arange(0, ROWS)[None, :, None]
        offsets = rows * SIZE + columns[:, None, :]
        mask = (rows < num_rows) & (columns < SIZE)[:, None, :]
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    if residual_ptr is not None:
        residual = tl.load(residual_ptr + offsets, mask=mask, other=0.0)
        x = (residual.to(tl.float32) + x.to(tl.float32)).to(sum_ptr.dtype.element_ty)
        tl.store(sum_ptr + offsets, x, mask=mask & (tl.program_id(0) == 0))
    return x
