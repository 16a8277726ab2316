"""A layer of experts in plain PyTorch, on any device: the reference that faster kernels are tested against.

Shape letters: T tokens, H hidden size, E experts, I inner size of an expert, K experts of a token.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F

from minisgl.kernel.torch_ops import silu_and_mul


class ClampedGate(NamedTuple):
    """GPT-OSS's way to join gate and up: (up + 1) * gate * sigmoid(alpha * gate), of gate <= limit, |up| <= limit."""

    alpha: float
    limit: float


class ExpertBiases(NamedTuple):
    """What is added behind the experts' matrices: gate_up [E, 2 * I], and down [E, H] or None, of their dtype."""

    gate_up: torch.Tensor
    down: torch.Tensor | None


def route(logits: torch.Tensor, num_chosen: int, normalised: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The K experts of every token with the largest logits, largest first: their weights and who they are.

    logits [T, E] -> [T, K] float32, a softmax over all E, and [T, K] int32. normalised: over the K alone, which is also
    what a softmax after the choice gives. Of experts that are equal the first is taken.
    """
    ranked, experts = logits.float().sort(dim=-1, descending=True, stable=True)
    if normalised:
        weights = ranked[:, :num_chosen].softmax(dim=-1)
    else:
        weights = ranked.softmax(dim=-1)[:, :num_chosen]
    return weights.contiguous(), experts[:, :num_chosen].int().contiguous()


def join_gate(gate_up: torch.Tensor, gate: ClampedGate | None) -> torch.Tensor:
    """[gate | up], [T, 2 * I] -> [T, I]: as `gate` says; None: silu(gate) * up."""
    if gate is None:
        return silu_and_mul(gate_up)
    gates, ups = gate_up.chunk(2, dim=-1)
    gates, ups = gates.clamp(max=gate.limit), ups.clamp(-gate.limit, gate.limit)
    return gates.mul(gate.alpha).sigmoid_().mul_(gates).mul_(ups.add_(1))


def run_experts(
    x: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
    weights: torch.Tensor,
    experts: torch.Tensor,
    biases: ExpertBiases | None = None,
    gate: ClampedGate | None = None,
) -> torch.Tensor:
    """The sum over k of weights[t, k] * down(silu(gate(x[t])) * up(x[t])) of expert experts[t, k], in this order.

    x [T, H]; gate_up [E, 2 * I, H] and down [E, H, I] of its dtype; weights [T, K] float32; experts [T, K] int32.
    gate: in place of silu. -> [T, H] of x's dtype. Every expert multiplies every token here: nothing waits for the
    device.
    """
    terms = x.new_zeros(*experts.shape, x.shape[1])
    first_bias, second_bias = biases or (None, None)
    for expert in range(len(gate_up)):
        y = linear_of(x, expert, gate_up, first_bias)
        y = linear_of(join_gate(y, gate), expert, down, second_bias)
        terms = torch.where((experts == expert)[:, :, None], y[:, None], terms)
    return sum_terms(terms, weights)


def linear_of(x: torch.Tensor, expert: int, weights: torch.Tensor, biases: torch.Tensor | None) -> torch.Tensor:
    """x [T, in] by one expert's matrix of weights [E, out, in], plus its bias, if there are biases [E, out]."""
    return F.linear(x, weights[expert], None if biases is None else biases[expert])


def sum_terms(terms: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """terms [T, K, H], weights [T, K] float32 -> [T, H] of the terms' dtype, added up in float32 in the order of K."""
    total = terms[:, 0].float() * weights[:, :1]
    for k in range(1, terms.shape[1]):
        total.addcmul_(terms[:, k].float(), weights[:, k, None])
    return total.to(terms.dtype)
