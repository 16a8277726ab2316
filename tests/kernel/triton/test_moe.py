"""A layer of experts in Triton, against the reference."""

from __future__ import annotations

import pytest
import torch
from support.pairs import in_pairs

from minisgl.kernel import torch_moe
from minisgl.kernel.triton import moe, moe_plan

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
TILINGS = [moe.ExpertTiling(16, 16, 16, 2, 4), moe.ExpertTiling(32, 16, 32, 2, 4)]


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def choices(num_tokens: int, num_experts: int, num_chosen: int, seed: int = 0) -> torch.Tensor:
    ids = random(num_tokens, num_experts, seed=seed).argsort(-1)[:, :num_chosen]
    return ids.int().contiguous()


@in_pairs(of_all=[(2, 8), (5, 5), (4, 60), (1, 1)], normalised=[False, True], dtype=[torch.float32, torch.float16])
def test_the_router_chooses_as_the_reference(of_all: tuple[int, int], normalised: bool, dtype: torch.dtype):
    num_chosen, num_experts = of_all
    logits = random(9, num_experts, dtype=dtype)
    logits[3] = logits[3].round()  # with some that are equal
    logits[4] = 0.5
    weights, experts = moe_plan.route(logits, num_chosen, normalised)
    expected, expected_experts = torch_moe.route(logits, num_chosen, normalised)
    assert torch.equal(experts, expected_experts)
    torch.testing.assert_close(weights, expected)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_the_router_names_experts_that_exist_even_for_scores_that_are_no_numbers():
    _, experts = moe_plan.route(random(2, 5) * float("nan"), 3, normalised=True)
    assert ((experts >= 0) & (experts < 5)).all()


@pytest.mark.parametrize("tile", [1, 16])
@pytest.mark.parametrize("num_tokens", [1, 7, 50, 400])
def test_the_plan_orders_pairs_by_expert_in_tiles_of_one_expert(num_tokens: int, tile: int):
    experts = choices(num_tokens, 7, 3)
    experts[experts == 2] = 6  # an expert without tokens, and one with more
    plan = moe_plan.plan_experts(experts, 7, tile)
    flat = experts.flatten().cpu()
    assert plan.order.tolist() == flat.argsort(stable=True).tolist()
    expected = []
    for expert in range(7):
        start, end = int((flat < expert).sum()), int((flat <= expert).sum())
        expected += [[expert, first, min(first + tile, end)] for first in range(start, end, tile)]
    assert plan.tiles[: len(expected)].tolist() == expected
    assert (plan.tiles[len(expected) :, 0] == -1).all()


@pytest.mark.parametrize(("num_pairs", "num_experts", "tile"), [(1, 8, 16), (5, 8, 4), (40, 3, 16), (64, 64, 2)])
def test_there_are_as_many_tiles_as_the_worst_choice_needs_and_no_more(num_pairs: int, num_experts: int, tile: int):
    present = min(num_pairs, num_experts)
    most = 0
    for spread in range(1, present + 1):  # one pair each, all others with the last
        counts = [1] * (spread - 1) + [num_pairs - spread + 1]
        most = max(most, sum(-(-count // tile) for count in counts))
    assert most <= moe_plan.max_tiles(num_pairs, num_experts, tile) <= num_pairs // tile + present


@pytest.mark.parametrize("element_size", [2, 4])
@pytest.mark.parametrize("num_pairs", [1, 2048, 8192, 65536])
def test_tiles_fit_into_the_shared_memory_of_small_gpus(num_pairs: int, element_size: int):
    tiling = moe.expert_tiling(num_pairs, 128, element_size)
    of_one_stage = (tiling.block_m + 2 * tiling.block_n) * tiling.block_k * element_size
    assert tiling.stages * of_one_stage <= 99 * 1024


def biases_of(num_experts: int, inner: int, size: int, dtype: torch.dtype = torch.float32) -> torch_moe.ExpertBiases:
    gate_up, down = random(num_experts, 2 * inner, dtype=dtype, seed=2), random(num_experts, size, dtype=dtype, seed=3)
    return torch_moe.ExpertBiases(gate_up, down)


@in_pairs(dtype=[torch.float32, torch.float16], on_down=[True, False], gate=[None, torch_moe.ClampedGate(1.702, 0.5)])
def test_biases_and_gates_are_those_of_the_reference(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, on_down: bool, gate: torch_moe.ClampedGate | None
):
    monkeypatch.setattr(moe, "expert_tiling", lambda *args: TILINGS[0])
    x, weights, experts = random(7, 40, dtype=dtype), random(7, 3).softmax(-1), choices(7, 6, 3)
    gate_up, down = random(6, 2 * 24, 40, dtype=dtype) / 4, random(6, 40, 24, dtype=dtype, seed=1) / 4
    biases = biases_of(6, 24, 40, dtype)
    biases = biases if on_down else biases._replace(down=None)
    got = moe.run_experts(x, gate_up, down, weights, experts, biases, gate)
    exact = torch_moe.ExpertBiases(*(bias if bias is None else bias.float() for bias in biases))
    expected = torch_moe.run_experts(x.float(), gate_up.float(), down.float(), weights, experts, exact, gate)
    tolerance = 1e-5 if dtype == torch.float32 else 4e-3
    torch.testing.assert_close(got.float(), expected, rtol=tolerance, atol=tolerance)


def test_the_clamped_gate_keeps_what_is_no_number():
    x = torch.full((1, 40), float("nan"), device=DEVICE)
    weights, experts = random(1, 3).softmax(-1), choices(1, 6, 3)
    args = (random(6, 48, 40), random(6, 40, 24), weights, experts, biases_of(6, 24, 40))
    assert moe.run_experts(x, *args, torch_moe.ClampedGate(1.702, 0.5)).isnan().all()


@in_pairs(dtype=[torch.float32, torch.float16], num_tokens=[1, 5, 70], tiling=TILINGS)
def test_the_layer_computes_as_the_reference(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, num_tokens: int, tiling: moe.ExpertTiling
):
    monkeypatch.setattr(moe, "expert_tiling", lambda *args: tiling)
    monkeypatch.setattr(moe, "SUM_BLOCK", 32)
    x = random(num_tokens, 40, dtype=dtype)
    gate_up, down = random(6, 2 * 24, 40, dtype=dtype) / 4, random(6, 40, 24, dtype=dtype, seed=1) / 4
    weights = random(num_tokens, 3).softmax(-1)
    experts = choices(num_tokens, 6, 3)
    got = moe.run_experts(x, gate_up, down, weights, experts)
    expected = torch_moe.run_experts(x.float(), gate_up.float(), down.float(), weights, experts)
    assert got.dtype == dtype
    tolerance = 1e-5 if dtype == torch.float32 else 4e-3
    torch.testing.assert_close(got.float(), expected, rtol=tolerance, atol=tolerance)


def test_a_token_without_batch_mates_gives_the_same_bits():
    x, experts = random(30, 40), choices(30, 6, 3)
    gate_up, down = random(6, 2 * 24, 40), random(6, 40, 24, seed=1)
    weights = random(30, 3).softmax(-1)
    together = moe.run_experts(x, gate_up, down, weights, experts)
    alone = [moe.run_experts(x[i, None], gate_up, down, weights[i, None], experts[i, None]) for i in range(3)]
    assert torch.equal(together[:3], torch.cat(alone))


def test_a_batch_without_tokens_gives_none():
    empty = torch.empty((0, 40), device=DEVICE)
    none = torch.empty((0, 3), device=DEVICE)
    weights, experts = moe_plan.route(torch.empty((0, 6), device=DEVICE), 3, normalised=True)
    assert weights.shape == experts.shape == none.shape
    out = moe.run_experts(empty, random(6, 48, 40), random(6, 40, 24), weights, experts)
    assert out.shape == (0, 40)


@pytest.mark.gpu
@pytest.mark.parametrize("num_tokens", [1, 64, 1000])
@pytest.mark.parametrize(("size", "inner", "num_experts", "num_chosen"), [(2048, 768, 128, 8), (1024, 3584, 8, 2)])
def test_the_shapes_of_real_models(num_tokens: int, size: int, inner: int, num_experts: int, num_chosen: int):
    x = random(num_tokens, size, dtype=torch.bfloat16)
    gate_up = random(num_experts, 2 * inner, size, dtype=torch.bfloat16) * 0.02
    down = random(num_experts, size, inner, dtype=torch.bfloat16, seed=1) * 0.02
    weights, experts = moe_plan.route(random(num_tokens, num_experts), num_chosen, normalised=True)
    got = moe.run_experts(x, gate_up, down, weights, experts).float()
    expected = torch_moe.run_experts(x.float(), gate_up.float(), down.float(), weights, experts)
    assert (got - expected).norm() < 0.01 * expected.norm()


@pytest.mark.gpu
@pytest.mark.parametrize("num_tokens", [1, 64, 1000])
def test_the_shapes_of_gpt_oss(num_tokens: int):
    gate, biases = torch_moe.ClampedGate(1.702, 7.0), biases_of(32, 2880, 2880, torch.bfloat16)
    x = random(num_tokens, 2880, dtype=torch.bfloat16)
    gate_up = random(32, 2 * 2880, 2880, dtype=torch.bfloat16) * 0.02
    down = random(32, 2880, 2880, dtype=torch.bfloat16, seed=1) * 0.02
    weights, experts = moe_plan.route(random(num_tokens, 32), 4, normalised=True)
    got = moe.run_experts(x, gate_up, down, weights, experts, biases, gate).float()
    exact = torch_moe.ExpertBiases(*(bias.float() for bias in biases))
    expected = torch_moe.run_experts(x.float(), gate_up.float(), down.float(), weights, experts, exact, gate)
    assert (got - expected).norm() < 0.01 * expected.norm()
