"""A layer of experts on a CPU: tokens sorted by expert, against every expert multiplying every token."""

from __future__ import annotations

import pytest
import torch
from transformers import GptOssConfig
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts

from minisgl.kernel import moe, torch_moe

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_the_largest_scores_are_chosen_and_the_first_of_equal_ones():
    logits = torch.tensor([[0.0, 2.0, 1.0, 2.0], [3.0, 3.0, 3.0, 3.0]])
    weights, experts = moe.route(logits, 2, normalised=True)
    assert experts.tolist() == [[1, 3], [0, 1]]
    torch.testing.assert_close(weights, torch.full((2, 2), 0.5))


def test_weights_are_a_softmax_over_all_or_over_the_chosen():
    logits = random(4, 6)
    (some, experts), (all_, _) = moe.route(logits, 3, normalised=False), moe.route(logits, 3, normalised=True)
    torch.testing.assert_close(some, logits.softmax(-1).gather(1, experts.long()))
    torch.testing.assert_close(all_, some / some.sum(-1, keepdim=True))


@DTYPES
@pytest.mark.parametrize("num_tokens", [0, 1, 5, 60])
@pytest.mark.parametrize("gate", [None, torch_moe.ClampedGate(1.702, 0.5)], ids=["silu", "clamped"])
@pytest.mark.parametrize("biased", [(), ("gate_up",), ("gate_up", "down")], ids=["no biases", "one", "two"])
def test_the_layer_computes_as_the_reference(
    num_tokens: int, gate: torch_moe.ClampedGate | None, biased: tuple[str, ...], dtype: torch.dtype
):
    x, gate_up, down = random(num_tokens, 40), random(8, 48, 40) / 4, random(8, 40, 24, seed=1) / 4
    given = (random(8, 48, seed=2) / 4, random(8, 40, seed=3) if "down" in biased else None)
    biases = torch_moe.ExpertBiases(*given) if biased else None
    rounded = biases and torch_moe.ExpertBiases(*(None if bias is None else bias.to(dtype) for bias in given))
    weights, experts = moe.route(random(num_tokens, 8), 3, normalised=True)
    got = moe.run_experts(x.to(dtype), gate_up.to(dtype), down.to(dtype), weights, experts, rounded, gate)
    expected = torch_moe.run_experts(x, gate_up, down, weights, experts, biases, gate)
    assert got.dtype == dtype
    tolerance = 1e-5 if dtype == torch.float32 else 0.1
    torch.testing.assert_close(got.float(), expected, rtol=0, atol=tolerance)


def test_the_reference_is_what_it_says_for_one_token():
    x, gate_up, down = random(1, 8), random(4, 12, 8), random(4, 8, 6, seed=1)
    weights, experts = torch.tensor([[0.7, 0.2]]), torch.tensor([[3, 1]], dtype=torch.int32)
    expected = torch.zeros(8)
    for weight, expert in zip(weights[0], experts[0], strict=True):
        gate, up = (gate_up[expert] @ x[0]).chunk(2)
        expected += weight * (down[expert] @ (torch.nn.functional.silu(gate) * up))
    torch.testing.assert_close(torch_moe.run_experts(x, gate_up, down, weights, experts)[0], expected)


def test_biases_belong_to_their_experts_and_the_clamped_gate_is_that_of_transformers():
    x, gate_up, down = random(1, 8), random(4, 12, 8), random(4, 8, 6, seed=1)
    biases = torch_moe.ExpertBiases(random(4, 12, seed=2), random(4, 8, seed=3))
    weights, experts = torch.tensor([[0.7, 0.2]]), torch.tensor([[3, 1]], dtype=torch.int32)
    theirs = GptOssExperts(GptOssConfig(hidden_size=8, intermediate_size=6, num_local_experts=4, swiglu_limit=1.0))
    expected = torch.zeros(8)
    for weight, expert in zip(weights[0], experts[0], strict=True):
        gate, up = (gate_up[expert] @ x[0] + biases.gate_up[expert]).chunk(2)
        joined = theirs._apply_gate(torch.stack((gate, up), dim=-1).flatten())  # there, they alternate
        expected += weight * (down[expert] @ joined + biases.down[expert])
    clamped = torch_moe.ClampedGate(theirs.alpha, theirs.limit)
    got = torch_moe.run_experts(x, gate_up, down, weights, experts, biases, clamped)
    torch.testing.assert_close(got[0], expected)
