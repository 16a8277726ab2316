"""A layer of experts as two grouped matrix multiplications: a program computes a tile of the pairs of one expert.

Both take their rows through the plan's order, so no token is copied; the second one leaves every term of a token's sum
in a place of its own, and a third kernel adds them up in the order of the token's choice, whatever its batch mates do.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from minisgl.kernel.torch_moe import ClampedGate, ExpertBiases
from minisgl.kernel.triton.activation import silu
from minisgl.kernel.triton.launch import begin_next, programmatic, wait_for_last
from minisgl.kernel.triton.moe_plan import ExpertPlan, plan_experts

SUM_BLOCK = 1024


class ExpertTiling(NamedTuple):
    """A program computes block_n features of block_m pairs, block_k of the inputs at a time.

    stages: blocks whose loads are under way.
    """

    block_m: int
    block_n: int
    block_k: int
    stages: int
    num_warps: int


def expert_tiling(num_pairs: int, num_experts: int, element_size: int) -> ExpertTiling:
    """By the pairs that an expert has on average: few of them cost the reading of its weights, many the multiplying.

    The blocks of gate and up fit into 100 KiB of shared memory. element_size: bytes.
    """
    average, block_k = num_pairs / num_experts, 128 // element_size
    if average <= 16:
        return ExpertTiling(16, 64, block_k, stages=5, num_warps=4)
    if average <= 64:
        return ExpertTiling(64, 64, block_k, stages=4, num_warps=4)
    return ExpertTiling(128, 64, block_k, stages=3, num_warps=8)


def run_experts(
    x: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
    weights: torch.Tensor,
    experts: torch.Tensor,
    biases: ExpertBiases | None = None,
    gate: ClampedGate | None = None,
) -> torch.Tensor:
    """See `torch_moe.run_experts`."""
    for tensor in (x, gate_up, down, weights, experts, *(biases or ())):
        assert tensor is None or tensor.is_contiguous(), f"a tensor {tuple(tensor.shape)} has strides {tensor.stride()}"
    (num_tokens, size), (num_experts, _, inner) = x.shape, down.shape
    assert gate_up.shape == (num_experts, 2 * inner, size), (x.shape, gate_up.shape, down.shape)
    assert weights.shape == experts.shape, (weights.shape, experts.shape)
    gate_up_bias, down_bias = biases or (None, None)
    assert gate_up_bias is None or gate_up_bias.shape == gate_up.shape[:2], (gate_up_bias, gate_up.shape)
    assert down_bias is None or down_bias.shape == down.shape[:2], (down_bias, down.shape)
    out = torch.empty_like(x)
    if num_tokens == 0:
        return out
    num_pairs, num_chosen = experts.numel(), experts.shape[1]
    tiling = expert_tiling(num_pairs, num_experts, x.element_size())
    plan = plan_experts(experts, num_experts, tiling.block_m)
    hidden = torch.empty((num_pairs, inner), dtype=x.dtype, device=x.device)
    terms = torch.empty((num_pairs, size), dtype=x.dtype, device=x.device)
    joined = "silu" if gate is None else "clamped"
    _grouped_gemm(x, gate_up, gate_up_bias, hidden, plan, tiling, num_chosen, joined, *(gate or ()))
    _grouped_gemm(hidden, down, down_bias, terms, plan, tiling, num_chosen)
    _sum_terms[(num_tokens, triton.cdiv(size, SUM_BLOCK))](
        *(terms, weights, out, size, num_chosen, SUM_BLOCK, programmatic()), num_warps=4, launch_pdl=programmatic()
    )
    return out


def _grouped_gemm(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    out: torch.Tensor,
    plan: ExpertPlan,
    tiling: ExpertTiling,
    num_chosen: int,
    gate: str = "",
    alpha: float = 0.0,
    limit: float = 0.0,
) -> None:
    """gate: x [T, K] by token -> out [P, N] by place in the order; else x [P, K] by place -> out [P, N] by pair."""
    features, size = out.shape[1], x.shape[1]
    _grouped_gemm_kernel[(len(plan.tiles), triton.cdiv(features, tiling.block_n))](
        *(x, weight, bias, out, plan.order, plan.tiles, features, size, num_chosen),
        *(tiling.block_m, tiling.block_n, tiling.block_k, gate, alpha, limit, programmatic()),
        num_warps=tiling.num_warps,
        num_stages=tiling.stages,
        launch_pdl=programmatic(),
    )


@triton.jit
def clamped_gate(gate, up, ALPHA: tl.constexpr, LIMIT: tl.constexpr):
    """See `torch_moe.ClampedGate`; NaN stays NaN."""
    gate = tl.minimum(gate, LIMIT, propagate_nan=tl.PropagateNan.ALL)
    up = tl.clamp(up, -LIMIT, LIMIT, propagate_nan=tl.PropagateNan.ALL)
    return (up + 1.0) * gate / (1.0 + tl.exp(-ALPHA * gate))


@triton.jit
def _grouped_gemm_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    order_ptr,
    tiles_ptr,
    features,
    size,
    num_chosen,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GATE: tl.constexpr,
    ALPHA: tl.constexpr,
    LIMIT: tl.constexpr,
    PDL: tl.constexpr,
):
    """A tile of one expert's pairs by BLOCK_N features. GATE: weight and bias are [gate | up], and out joins the two.

    bias_ptr may be None.
    """
    GATED: tl.constexpr = GATE != ""
    begin_next(PDL)
    tile = tiles_ptr + tl.program_id(0) * 3
    outputs = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    columns = tl.arange(0, BLOCK_K)
    wait_for_last(PDL)
    expert = tl.load(tile).to(tl.int64)
    if expert >= 0:
        places = tl.load(tile + 1) + tl.arange(0, BLOCK_M)
        inside = places < tl.load(tile + 2)
        pairs = tl.load(order_ptr + places, mask=inside, other=0)
        sources, targets = (pairs // num_chosen, places) if GATED else (places, pairs)
        height = 2 * features if GATED else features
        inputs = x_ptr + sources.to(tl.int64)[:, None] * size
        weights = weight_ptr + (expert * height + tl.minimum(outputs, features - 1))[None, :] * size
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        up_acc = acc
        for first in range(0, size, BLOCK_K):
            k = first + columns
            x = tl.load(inputs + k[None, :], mask=inside[:, None] & (k < size)[None, :], other=0.0)
            weight = tl.load(weights + k[:, None], mask=(k < size)[:, None], other=0.0)
            acc = tl.dot(x, weight, acc, input_precision="ieee")
            if GATED:
                up = tl.load(weights + features * size + k[:, None], mask=(k < size)[:, None], other=0.0)
                up_acc = tl.dot(x, up, up_acc, input_precision="ieee")
        if bias_ptr is not None:
            biases = bias_ptr + expert * height + tl.minimum(outputs, features - 1)
            acc += tl.load(biases)[None, :].to(tl.float32)
            if GATED:
                up_acc += tl.load(biases + features)[None, :].to(tl.float32)
        if GATE == "clamped":
            y = clamped_gate(acc, up_acc, ALPHA, LIMIT)
        else:
            y = silu(acc) * up_acc if GATED else acc
        at = out_ptr + targets.to(tl.int64)[:, None] * features + outputs[None, :]
        tl.store(at, y.to(out_ptr.dtype.element_ty), mask=inside[:, None] & (outputs < features)[None, :])


@triton.jit
def _sum_terms(terms_ptr, weights_ptr, out_ptr, size, num_chosen, BLOCK: tl.constexpr, PDL: tl.constexpr):
    """terms [T, K, H] and weights [T, K] to [T, H]."""
    begin_next(PDL)
    token = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < size
    wait_for_last(PDL)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(num_chosen):
        pair = token * num_chosen + k
        term = tl.load(terms_ptr + pair * size + columns, mask=mask, other=0.0)
        total += tl.load(weights_ptr + pair) * term.to(tl.float32)
    tl.store(out_ptr + token * size + columns, total.to(out_ptr.dtype.element_ty), mask=mask)
