"""A linear layer for a few rows: its weights are read once, at the speed of memory, and that is nearly the whole cost.

What a decoder has about a linear layer is done on the way, so that it takes few launches: the residual sum and the norm
before it, the gate of an MLP after it.

A program computes BLOCK_N features, a warp some of these for itself: it holds all of K, so that no warp waits for
another. The first DEPTH tiles of weights are asked for before the last kernel is waited for, since nothing in a step
writes weights. Products are added up in float32 without tensor cores, which so few rows do not fill.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from minisgl.kernel.triton.activation import activate
from minisgl.kernel.triton.launch import begin_next, programmatic, wait_for_last

NUM_WARPS = 4
# Of a thread: three programs a processor. Without a limit the compiler saves registers and asks for inputs one by one,
# each when the last has come. With a norm it does not, and saving them pays.
MAX_REGISTERS = 168
WIDTH = 256  # of a slice of K: 8 elements, that is 16 bytes, a lane


class Tiling(NamedTuple):
    """How a program goes over its weights: in tiles of [block_n, slices * WIDTH], `depth` of them ahead."""

    block_n: int
    slices: int
    depth: int


def tiling(size: int) -> Tiling:
    """For weights [N, size]. Some 64 KiB a processor are asked for at a time."""
    if size <= 3072:
        return Tiling(8, min(4, triton.next_power_of_2(triton.cdiv(size, WIDTH))), 3)
    return Tiling(8, 2, 4)


def small_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    gate: str | None = None,
    residual: torch.Tensor | None = None,
    norm_weight: torch.Tensor | None = None,
    eps: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(the linear layer of norm(residual + x), residual + x), where all arguments but x and weight may lack.

    All of one dtype: x, residual [T, K] of few rows, weight [N, K], bias [N]; norm_weight [K] of it or float32.
    gate: weight is [gate | up], and the result, [T, N / 2], activate(gate) * up, by the activation of this name.
    """
    rows, size = x.shape
    features = weight.shape[0]
    assert x.is_contiguous(), f"rows of x {tuple(x.shape)} do not lie side by side: strides {x.stride()}"
    assert weight.is_contiguous(), f"rows of the weight do not lie side by side: strides {weight.stride()}"
    assert weight.shape[1] == size, (x.shape, weight.shape)
    total = x if residual is None else torch.empty_like(x)
    out = torch.empty((rows, features if gate is None else features // 2), dtype=x.dtype, device=x.device)
    tiles = tiling(size)
    _small_linear[(triton.cdiv(features, tiles.block_n),)](
        *(x, residual, norm_weight, weight, bias, out, total, rows, out.shape[1], eps, size),
        *(triton.next_power_of_2(rows), *tiles, gate, WIDTH, NUM_WARPS, programmatic()),
        num_warps=NUM_WARPS,
        maxnreg=MAX_REGISTERS if norm_weight is None else None,
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
    SLICES: tl.constexpr,
    DEPTH: tl.constexpr,
    GATE: tl.constexpr,
    WIDTH: tl.constexpr,
    WARPS: tl.constexpr,
    PDL: tl.constexpr,
):
    """out = norm(residual + x) weight^T + bias, each of residual, norm and bias maybe None; sum = residual + x.

    GATE: weight is [gate | up], and out = activate(gate) * up; a tile's rows alternate between the two. The norm's
    scale is one number a row of x, and so the result is multiplied by it, not x: that takes one pass.
    """
    begin_next(PDL)
    BLOCK_K: tl.constexpr = SLICES * WIDTH
    NUM_TILES: tl.constexpr = (SIZE + BLOCK_K - 1) // BLOCK_K
    AHEAD: tl.constexpr = min(DEPTH, NUM_TILES)
    SHARE: tl.constexpr = BLOCK_N // WARPS
    LANES: tl.constexpr = WIDTH // 8
    warps = tl.arange(0, WARPS)[:, None]
    features = tl.program_id(0) * BLOCK_N + warps * SHARE + tl.arange(0, SHARE)[None, :]
    if GATE is not None:
        weight_rows = tl.minimum(features // 2, num_outputs - 1) + features % 2 * num_outputs
    else:
        weight_rows = tl.minimum(features, num_outputs - 1)
    columns = tl.arange(0, SLICES)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]  # of a tile
    weights = weight_ptr + weight_rows.to(tl.int64)[:, :, None, None] * SIZE
    tiles = ()
    for i in tl.static_range(AHEAD):
        tiles = tiles + (_tile(weights, i * BLOCK_K + columns, SIZE, (i + 1) * BLOCK_K <= SIZE),)
    wait_for_last(PDL)

    products, squares = (), ()  # of every row of x
    for _ in tl.static_range(ROWS):
        products = products + (tl.zeros((WARPS, SHARE, LANES), tl.float32),)
        squares = squares + (tl.zeros((WARPS, LANES), tl.float32),)
    for first in range(0, NUM_TILES, AHEAD):
        for i in tl.static_range(AHEAD):
            at = (
                (first + i) * BLOCK_K + columns[None, :, :] + tl.zeros((WARPS, 1, 1), tl.int32)
            )  # the same in all warps
            inside = at < SIZE
            if norm_weight_ptr is not None:
                norm_weight = tl.load(norm_weight_ptr + at, mask=inside, other=0.0).to(tl.float32)
            inputs = ()  # asked for together, which the barrier is for
            for row in tl.static_range(ROWS):
                mask = inside & (row < num_rows)
                x = tl.load(x_ptr + row * SIZE + at, mask=mask, other=0.0)
                if residual_ptr is not None:
                    residual = tl.load(residual_ptr + row * SIZE + at, mask=mask, other=0.0)
                    x = (residual.to(tl.float32) + x.to(tl.float32)).to(sum_ptr.dtype.element_ty)
                inputs = inputs + (x,)
            tl.debug_barrier()
            weight = tiles[0].to(tl.float32)
            for row in tl.static_range(ROWS):
                if residual_ptr is not None:
                    is_first = (tl.program_id(0) == 0) & (warps == 0)
                    mask = inside & (row < num_rows) & is_first[:, :, None]
                    tl.store(sum_ptr + row * SIZE + at, inputs[row], mask=mask)
                x = inputs[row].to(tl.float32)
                if norm_weight_ptr is not None:
                    by_lane = tl.sum(tl.reshape(x * x, (WARPS, SLICES, LANES, 8)), axis=3)
                    squares = squares[1:] + (squares[0] + tl.sum(by_lane, axis=1),)
                    x *= norm_weight
                product = tl.reshape(weight * x[:, None, :, :], (WARPS, SHARE, SLICES, LANES, 8))
                products = products[1:] + (products[0] + tl.sum(tl.sum(product, axis=4), axis=2),)
            if NUM_TILES > AHEAD:
                tiles = tiles[1:] + (_tile(weights, (first + i + AHEAD) * BLOCK_K + columns, SIZE, False),)
            else:
                tiles = tiles[1:] + (tiles[0],)

    for row in tl.static_range(ROWS):
        y = tl.sum(products[row], axis=2)
        if norm_weight_ptr is not None:
            y *= tl.rsqrt(tl.sum(squares[row], axis=1) / SIZE + eps)[:, None]
        if bias_ptr is not None:
            y += tl.load(bias_ptr + weight_rows).to(tl.float32)
        if GATE is not None:
            gate, up = tl.split(tl.reshape(y, (WARPS, SHARE // 2, 2)))
            y = activate(gate, GATE) * up
            outputs = (tl.program_id(0) * BLOCK_N + warps * SHARE) // 2 + tl.arange(0, SHARE // 2)[None, :]
        else:
            outputs = features
        mask = (outputs < num_outputs) & (row < num_rows)
        tl.store(out_ptr + row * num_outputs + outputs, y.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _tile(weights, columns, SIZE: tl.constexpr, IS_WHOLE: tl.constexpr):
    """`columns` [S, W] of the rows that `weights` [warps, N] point to: [warps, N, S, W]. Nothing beyond a row's end."""
    if IS_WHOLE:
        return tl.load(weights + columns[None, None, :, :], eviction_policy="evict_first")
    mask = (columns < SIZE)[None, None, :, :]
    return tl.load(weights + columns[None, None, :, :], mask=mask, other=0.0, eviction_policy="evict_first")
