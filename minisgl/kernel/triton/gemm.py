"""A linear layer for the tokens of a decode step, by tensor cores: to read the weights is most of the work.

Features are the long side of a tile, and tokens its short side. Where a layer has few features, several programs share
the K of a tile; the one that ends last adds up what all have left, always in the same order. Weights are asked for
before the last kernel is waited for, since nothing in a step writes weights.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch.utils.weak import WeakTensorKeyDictionary

from minisgl.kernel.gemm_tiling import GemmTiling
from minisgl.kernel.triton.activation import activate
from minisgl.kernel.triton.launch import begin_next, programmatic, wait_for_last

MAX_TILES = 1024  # that several programs share
PIECE = 256  # elements of two bytes that one instruction asks for
_ARRIVALS = WeakTensorKeyDictionary()  # by weight


def gemm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, gate: str | None, tiling: GemmTiling
) -> torch.Tensor:
    """x [T, K] times the transpose of weight [N, K], plus bias [N]; gate: as in `minisgl.kernel.linear`.

    All of one dtype of two bytes. T is at least 1, K a multiple of the tiling's split * block_k.
    """
    rows, size = x.shape
    assert x.is_contiguous(), f"rows of x {tuple(x.shape)} do not lie side by side: strides {x.stride()}"
    assert weight.is_contiguous(), f"rows of the weight do not lie side by side: strides {weight.stride()}"
    assert weight.shape[1] == size, (x.shape, weight.shape)
    assert size % (tiling.split * tiling.block_k) == 0, (size, tiling)
    assert tiling.split * tiling.ahead <= size, (size, tiling)
    num_outputs = weight.shape[0] if gate is None else weight.shape[0] // 2
    tiles = triton.cdiv(num_outputs, tiling.block_n if gate is None else tiling.block_n // 2)
    row_tiles = triton.cdiv(rows, tiling.block_m)
    out = torch.empty((rows, num_outputs), dtype=x.dtype, device=x.device)
    if tiling.split == 1:
        partials, arrivals = None, None
    else:
        assert tiles * row_tiles <= MAX_TILES, (weight.shape, tiling)
        shape = (tiles, row_tiles, tiling.split, tiling.block_n, tiling.block_m)
        partials, arrivals = torch.empty(shape, dtype=torch.float32, device=x.device), _arrivals(weight)
    _gemm[(row_tiles, tiles, tiling.split)](
        *(x, weight, bias, out, partials, arrivals, rows, num_outputs, size),
        *(size // (tiling.split * tiling.block_k), tiling.block_m, tiling.block_n, tiling.block_k, tiling.split),
        *(tiling.ahead // PIECE, PIECE, gate, programmatic()),
        num_warps=tiling.num_warps,
        num_stages=tiling.stages,
        launch_pdl=programmatic(),
    )
    return out


def _arrivals(weight: torch.Tensor) -> torch.Tensor:
    """How many programs of each tile of its features are done, [MAX_TILES] int32: 0 between calls.

    A weight has its own as long as it lives. So engines on one device may compute at the same time, each on a stream of
    its own, as one does that captures its graphs while another one works; one weight is multiplied by one call at a
    time. A graph keeps the address, and what is zeroed in a graph is not zero before a replay: a weight's first call
    is not captured.
    """
    found: torch.Tensor | None = _ARRIVALS.get(weight)
    if found is None:
        capturing = weight.is_cuda and torch.cuda.is_current_stream_capturing()
        assert not capturing, "the first multiplication by a weight must not be captured in a CUDA graph"
        found = torch.zeros(MAX_TILES, dtype=torch.int32, device=weight.device)
        _ARRIVALS[weight] = found
    return found


@triton.jit(do_not_specialize=["num_rows"])
def _gemm(
    x_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    partials_ptr,
    arrivals_ptr,
    num_rows,
    num_outputs,
    size,
    STEPS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLIT: tl.constexpr,
    PIECES: tl.constexpr,
    PIECE: tl.constexpr,
    GATE: tl.constexpr,
    PDL: tl.constexpr,
):
    """A tile: the features [BLOCK_N] of BLOCK_M rows. Each of SPLIT programs computes it over STEPS blocks of K.

    GATE: weight is [gate | up]; half of the tile is of the gate, the other half what is gated. PIECES of each feature
    are asked for before the last kernel is waited for.
    """
    begin_next(PDL)
    part = tl.program_id(2)
    SHARE: tl.constexpr = STEPS * BLOCK_K
    OUTPUTS: tl.constexpr = BLOCK_N if GATE is None else BLOCK_N // 2
    locals = tl.arange(0, BLOCK_N)
    features = tl.minimum(tl.program_id(1) * OUTPUTS + locals % OUTPUTS, num_outputs - 1)
    if GATE is not None:
        features += locals // OUTPUTS * num_outputs
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.arange(0, BLOCK_K)
    weights = weight_ptr + features.to(tl.int64)[:, None] * size + part * SHARE
    inputs = x_ptr + rows[:, None] * size + part * SHARE
    if PDL and PIECES > 0:
        _ask_for(weights + (tl.arange(0, PIECES) * PIECE)[None, :])
    wait_for_last(PDL)

    acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    for first in range(0, SHARE, BLOCK_K):
        weight = tl.load(weights + (first + columns)[None, :], eviction_policy="evict_first")
        x = tl.load(inputs + (first + columns)[None, :], mask=(rows < num_rows)[:, None], other=0.0)
        acc = tl.dot(weight, tl.trans(x), acc, input_precision="ieee")

    if SPLIT == 1:
        if GATE is not None:
            gate, up = tl.split(tl.permute(tl.reshape(acc, (2, OUTPUTS, BLOCK_M)), (1, 2, 0)))
        else:
            gate, up = acc, acc
        _store(gate, up, bias_ptr, out_ptr, num_rows, num_outputs, OUTPUTS, BLOCK_M, GATE)
    else:
        tile = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
        partials = partials_ptr + tile * SPLIT * (BLOCK_N * BLOCK_M) + tl.arange(0, BLOCK_M)[None, :]
        tl.store(partials + (part * BLOCK_N + locals)[:, None] * BLOCK_M, acc)
        tl.debug_barrier()  # all threads have stored before one of them tells of it
        arrived = tl.atomic_add(arrivals_ptr + tile, 1, sem="acq_rel")
        if arrived == SPLIT - 1:
            tl.store(arrivals_ptr + tile, 0)
            gate = tl.zeros((OUTPUTS, BLOCK_M), tl.float32)
            up = gate
            for i in tl.static_range(SPLIT):
                at = (i * BLOCK_N + tl.arange(0, OUTPUTS))[:, None] * BLOCK_M
                gate += tl.load(partials + at, cache_modifier=".cg")
                if GATE is not None:
                    up += tl.load(partials + at + OUTPUTS * BLOCK_M, cache_modifier=".cg")
            _store(gate, up, bias_ptr, out_ptr, num_rows, num_outputs, OUTPUTS, BLOCK_M, GATE)


@triton.jit
def _store(
    gate,
    up,
    bias_ptr,
    out_ptr,
    num_rows,
    num_outputs,
    OUTPUTS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    GATE: tl.constexpr,
):
    """Sums [OUTPUTS, BLOCK_M] go to `out` [T, N], with bias and gate. `up` is used where there is a gate."""
    outputs = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    inside = outputs < num_outputs
    if bias_ptr is not None:
        gate += tl.load(bias_ptr + outputs, mask=inside, other=0.0).to(tl.float32)[:, None]
        if GATE is not None:
            up += tl.load(bias_ptr + num_outputs + outputs, mask=inside, other=0.0).to(tl.float32)[:, None]
    y = gate if GATE is None else activate(gate, GATE) * up
    at = out_ptr + rows[None, :] * num_outputs + outputs[:, None]
    tl.store(at, y.to(out_ptr.dtype.element_ty), mask=inside[:, None] & (rows < num_rows)[None, :])


@triton.jit
def _ask_for(addresses):
    """Have the piece at each of these addresses brought to the L2 cache."""
    fetch: tl.constexpr = "cp.async.bulk.prefetch.L2.global [$1], 512; mov.u32 $0, 0;"
    tl.inline_asm_elementwise(fetch, "=r,l", [addresses.to(tl.int64)], dtype=tl.int32, is_pure=False, pack=1)
