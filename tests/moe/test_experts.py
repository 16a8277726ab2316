"""A layer of experts and its router: the shares of ranks sum to the whole, and biases count once."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
import torch.nn.functional as F

from minisgl.distributed import SINGLE, TPInfo
from minisgl.kernel import has_cpp, torch_moe
from minisgl.layers import Layer, Placement
from minisgl.moe import ClampedGate, Experts, Router, Routing, WholeLinear

NUM_EXPERTS, HIDDEN, INNER = 4, 16, 24
GATES = pytest.mark.parametrize("gate", [None, ClampedGate(1.702, 0.5)], ids=["silu", "clamped"])


def place(tp: TPInfo = SINGLE, dtype: torch.dtype = torch.float32) -> Placement:
    return Placement(dtype, torch.device("cpu"), tp)


def random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def load(layer: Layer, tensors: Mapping[str, torch.Tensor]) -> None:
    slots = layer.slots()
    assert slots.keys() == tensors.keys()
    for name, tensor in tensors.items():
        slots[name].load(name, tensor)
    layer.pack()


def weights_of(bias: bool) -> dict[str, torch.Tensor]:
    shapes = {"gate_proj": (INNER, HIDDEN), "up_proj": (INNER, HIDDEN), "down_proj": (HIDDEN, INNER)}
    named = {f"experts.{expert}.{name}": shape for expert in range(NUM_EXPERTS) for name, shape in shapes.items()}
    generator = torch.Generator().manual_seed(0)
    tensors = {f"{name}.weight": torch.randn(shape, generator=generator) / 4 for name, shape in named.items()}
    biases = {f"{name}.bias": torch.randn(shape[0], generator=generator) for name, shape in named.items()}
    return tensors | (biases if bias else {})


def whole(
    x: torch.Tensor, routing: Routing, tensors: Mapping[str, torch.Tensor], gate: ClampedGate | None
) -> torch.Tensor:
    """By every expert's own three matrices, one token after the other."""
    out = torch.zeros_like(x)
    for token, (shares, experts) in enumerate(zip(*routing, strict=True)):
        for share, expert in zip(shares, experts.tolist(), strict=True):
            own = {
                name: (tensors[f"experts.{expert}.{name}.weight"], tensors.get(f"experts.{expert}.{name}.bias"))
                for name in ("gate_proj", "up_proj", "down_proj")
            }
            joined = torch.cat([F.linear(x[token], *own["gate_proj"]), F.linear(x[token], *own["up_proj"])])
            out[token] += share * F.linear(torch_moe.join_gate(joined[None], gate)[0], *own["down_proj"])
    return out


@GATES
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("tp_size", [1, 2, 3])
def test_terms_of_all_ranks_sum_to_the_whole(tp_size: int, bias: bool, gate: ClampedGate | None):
    x, tensors = random(7, HIDDEN), weights_of(bias)
    routing = Routing(*torch_moe.route(random(7, NUM_EXPERTS), 2, normalised=True))
    total = torch.zeros_like(x)
    for rank in range(tp_size):
        layer = Experts(NUM_EXPERTS, HIDDEN, INNER, place(TPInfo(rank, tp_size)), bias=bias, gate=gate)
        load(layer, tensors)
        total += layer.partial(x, routing)
    torch.testing.assert_close(total, whole(x, routing, tensors, gate), atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_token_without_company_gets_what_it_gets_among_others(dtype: torch.dtype):
    """To the bit where products are our own kernels'."""
    x, layer = random(90, HIDDEN).to(dtype), Experts(NUM_EXPERTS, HIDDEN, INNER, place(dtype=dtype))
    load(layer, weights_of(bias=False))
    weights, experts = torch_moe.route(random(90, NUM_EXPERTS), 2, normalised=True)
    together = layer.partial(x, Routing(weights, experts))
    for first, end in ((0, 1), (5, 9), (40, 41), (20, 90)):
        some = slice(first, end)
        got = layer.partial(x[some], Routing(weights[some], experts[some]))
        torch.testing.assert_close(got, together[some])
        assert not has_cpp(x) or torch.equal(got, together[some])


def test_ranks_that_cannot_share_the_inner_size_are_refused_with_the_numbers():
    with pytest.raises(ValueError, match="tensor_parallel_size=5 does not divide the inner size of experts=24"):
        Experts(NUM_EXPERTS, HIDDEN, INNER, place(TPInfo(0, 5)))


@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_a_router_chooses_by_a_softmax_of_its_scores_and_every_rank_has_all_of_it(bias: bool, normalised: bool):
    x, tensors = random(6, HIDDEN), {"weight": random(NUM_EXPERTS, HIDDEN)}
    if bias:
        tensors["bias"] = 3 * random(NUM_EXPERTS)
    shares = F.linear(x, **tensors).softmax(-1)
    weights, experts = shares.topk(2)
    weights = weights / weights.sum(-1, keepdim=True) if normalised else weights
    for tp in (SINGLE, TPInfo(1, 2)):
        router = Router(HIDDEN, NUM_EXPERTS, 2, normalised, place(tp), bias)
        load(router, tensors)
        chosen = router.choose(x)
        assert torch.equal(chosen.experts.long(), experts)
        torch.testing.assert_close(chosen.weights, weights)
        assert (chosen.weights.dtype, chosen.experts.dtype) == (torch.float32, torch.int32)


def test_a_linear_layer_for_few_features_is_whole_on_every_rank():
    x, weight = random(3, HIDDEN), random(1, HIDDEN)
    for tp in (SINGLE, TPInfo(1, 2)):
        layer = WholeLinear(HIDDEN, 1, place(tp))
        load(layer, {"weight": weight})
        torch.testing.assert_close(layer.forward(x), F.linear(x, weight))
