"""A layer of experts on a CPU: tokens sorted by expert, against every expert multiplying every token."""

from __future__ import annotations

import pytest
import torch

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
def test_the_layer_computes_as_the_reference(num_tokens: int, dtype: torch.dtype):
    x, gate_up, down = random(num_tokens, 40), random(8, 48, 40) / 4, random(8, 40, 24, seed=1) / 4
    weights, experts = moe.route(random(num_tokens, 8), 3, normalised=True)
    got = moe.run_experts(x.to(dtype), gate_up.to(dtype), down.to(dtype), weights, experts)
    expected = torch_moe.run_experts(x, gate_up, down, weights, experts)
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
