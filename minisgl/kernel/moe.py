"""A layer of experts by the fastest way that the tensors at hand allow; `torch_moe` says what each operation does."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch

from minisgl.kernel import silu_and_mul, torch_moe, triton
from minisgl.kernel.torch_moe import ClampedGate, ExpertBiases, linear_of

RunExpert = Callable[[int, torch.Tensor], torch.Tensor]


def route(logits: torch.Tensor, num_chosen: int, normalised: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """See `torch_moe.route`."""
    if triton.can_take(logits):
        in_triton = triton.operation("moe_plan", "route")
        return cast(tuple[torch.Tensor, torch.Tensor], in_triton(logits, num_chosen, normalised))
    return torch_moe.route(logits, num_chosen, normalised)


def join_gate(gate_up: torch.Tensor, gate: ClampedGate | None) -> torch.Tensor:
    """See `torch_moe.join_gate`, for a CPU."""
    return silu_and_mul(gate_up) if gate is None else torch_moe.join_gate(gate_up, gate)


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
    if triton.can_take(x):
        in_triton = triton.operation("moe", "run_experts")
        return cast(torch.Tensor, in_triton(x, gate_up, down, weights, experts, biases, gate))
    if x.is_cpu:
        first_bias, second_bias = biases or (None, None)

        def run(expert: int, rows: torch.Tensor) -> torch.Tensor:
            joined = join_gate(linear_of(rows, expert, gate_up, first_bias), gate)
            return linear_of(joined, expert, down, second_bias)

        return run_sorted(x, run, weights, experts)
    return torch_moe.run_experts(x, gate_up, down, weights, experts, biases, gate)


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
