"""A layer of experts by the fastest way that the tensors at hand allow; `torch_moe` says what each operation does."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
import torch.nn.functional as F

from minisgl.kernel import silu_and_mul, torch_moe, triton

RunExpert = Callable[[int, torch.Tensor], torch.Tensor]


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

        def run(expert: int, rows: torch.Tensor) -> torch.Tensor:
            return F.linear(silu_and_mul(F.linear(rows, gate_up[expert])), down[expert])

        return run_sorted(x, run, weights, experts)
    return torch_moe.run_experts(x, gate_up, down, weights, experts)


def run_sorted(x: torch.Tensor, run: RunExpert, weights: torch.Tensor, experts: torch.Tensor) -> torch.Tensor:
    """`torch_moe.run_experts` with tokens sorted by expert: one call of `run` for each that has any, with these alone.

    run: expert and rows [N, H] -> [N, H]. Waits for the device to know how many rows these are, so this is for a CPU.
    """
    num_tokens, num_chosen = experts.shape
    flat = experts.flatten()
    counts = {expert: count for expert, count in enumerate(flat.bincount().tolist()) if count}
    terms = x.new_empty(num_tokens, num_chosen, x.shape[1])
    by_pair = terms.flatten(0, 1)
    groups = flat.argsort(stable=True).split_with_sizes(list(counts.values()))
    for expert, pairs in zip(counts, groups, strict=True):
        by_pair[pairs] = run(expert, x[pairs // num_chosen])
    return torch_moe.sum_terms(terms, weights)
