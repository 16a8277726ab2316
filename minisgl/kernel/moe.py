"""A layer of experts by the fastest way that the tensors at hand allow; `torch_moe` says what each operation does."""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F

from minisgl.kernel import silu_and_mul, torch_moe, triton


def route(logits: torch.Tensor, num_chosen: int, normalised: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """See `torch_moe.route`."""
    if triton.can_take(logits):
        in_triton = triton.operation("moe_plan", "route")
        return cast(tuple[torch.Tensor, torch.Tensor], in_triton(logits, num_chosen, normalised))
    return torch_moe.route(logits, num_chosen, normalised)


def run_experts(
    x: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor, weights: torch.Tensor, experts: torch.Tensor
) -> torch.Tensor:
    """See `torch_moe.run_experts`."""
    if triton.can_take(x):
        return cast(torch.Tensor, triton.operation("moe", "run_experts")(x, gate_up, down, weights, experts))
    if x.is_cpu:
        return run_sorted(x, gate_up, down, weights, experts)
    return torch_moe.run_experts(x, gate_up, down, weights, experts)


def run_sorted(
    x: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor, weights: torch.Tensor, experts: torch.Tensor
) -> torch.Tensor:
    """`torch_moe.run_experts` with tokens sorted by expert: two matmuls for each that has any, and of these alone.

    Waits for the device to know how many these are, so this is for a CPU.
    """
    num_tokens, num_chosen = experts.shape
    by_expert, order = experts.flatten().sort(stable=True)
    present, counts = by_expert.unique_consecutive(return_counts=True)
    rows = x[order // num_chosen].split(counts.tolist())
    terms = x.new_empty(num_tokens * num_chosen, x.shape[1])
    for expert, mine, places in zip(present.tolist(), rows, order.split(counts.tolist()), strict=True):
        terms[places] = F.linear(silu_and_mul(F.linear(mine, gate_up[expert])), down[expert])
    return torch_moe.sum_terms(terms.view(num_tokens, num_chosen, -1), weights)
