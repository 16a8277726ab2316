"""A linear layer with what a decoder has before and after it: in one kernel where that pays, else one by one."""

from __future__ import annotations

from functools import cache
from typing import cast

import torch
import torch.nn.functional as F

from minisgl.kernel import add_rms_norm, gelu_tanh_and_mul, rms_norm, silu_and_mul, triton
from minisgl.kernel.gemm_tiling import gemm_tiling

Pair = tuple[torch.Tensor, torch.Tensor]

# What makes [T, N] of [gate | up], [T, 2 * N], by what Hugging Face calls the activation.
GATES = {"silu": silu_and_mul, "gelu_pytorch_tanh": gelu_tanh_and_mul}
# With more rows, a GEMM and kernels for the rest take less time than one for all.
MAX_ROWS = 2
# The largest K of a norm that is part of it: every program computes the norm for itself, of ever more elements.
MAX_NORM_SIZE = 2048


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, gate: str | None = None) -> torch.Tensor:
    """x [T, K] times the transpose of weight [N, K], plus bias [N]; gate: GATES[gate] of that, [T, N / 2].

    Rows of x that lie apart, other numbers than bfloat16 and other GPUs than a Hopper are torch's.
    """
    if _is_small(x):
        out, _ = triton.operation("linear", "small_linear")(x, weight, bias, gate)
        return cast(torch.Tensor, out)
    tiling = gemm_tiling(len(x), *weight.shape) if _can_take(x) and _is_hopper(x.device) else None
    if tiling is not None:
        return cast(torch.Tensor, triton.operation("gemm", "gemm")(x, weight, bias, gate, tiling))
    out = F.linear(x, weight, bias)
    return out if gate is None else GATES[gate](out)


def add_norm_linear(
    x: torch.Tensor,
    residual: torch.Tensor | None,
    norm_weight: torch.Tensor,
    eps: float,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    gate: str | None = None,
) -> Pair:
    """(linear(rms_norm(residual + x)), residual + x); without a residual the sum is x.

    x and residual [T, K] are given up: the sum may lie in their memory.
    """
    if _is_small(x) and x.shape[1] <= MAX_NORM_SIZE:
        in_one = triton.operation("linear", "small_linear")
        return cast(Pair, in_one(x, weight, bias, gate, residual, norm_weight, eps))
    if residual is None:
        normed, total = rms_norm(x, norm_weight, eps), x
    else:
        normed, total = add_rms_norm(x, residual, norm_weight, eps), residual
    return linear(normed, weight, bias, gate), total


def _is_small(x: torch.Tensor) -> bool:
    """Whether tensor cores are of no use."""
    return len(x) <= MAX_ROWS and _can_take(x)


def _can_take(x: torch.Tensor) -> bool:
    """Whether Triton's linear layers may multiply x."""
    return x.is_cuda and len(x) > 0 and x.dtype == torch.bfloat16 and x.is_contiguous() and triton.in_use()


@cache
def _is_hopper(device: torch.device) -> bool:
    """Whether this is a GPU like the one that tilings were measured on."""
    return torch.cuda.get_device_capability(device)[0] == 9
