"""The reference operations."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F

from minisgl.kernel import torch_ops
from minisgl.kernel.torch_ops import attention, attention_by_matmul, fast_compare_key, merge_states, store_cache


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        ([], [], 0),
        ([1], [], 0),
        ([1, 2, 3], [1, 2, 3], 3),
        ([1, 2], [1, 2, 3], 2),
        ([5, 2], [1, 2], 0),
        ([1, 5], [1, 2], 1),
    ],
)
def test_fast_compare_key_is_the_first_difference(x: list[int], y: list[int], expected: int):
    assert fast_compare_key(torch.tensor(x, dtype=torch.int32), torch.tensor(y, dtype=torch.int32)) == expected


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
def test_store_cache_writes_the_named_slots_only(index_dtype: torch.dtype):
    k_cache, v_cache = torch.zeros(5, 2, 3), torch.zeros(5, 2, 3)
    k, v = torch.randn(2, 2, 3), torch.randn(2, 2, 3)
    store_cache(k_cache, v_cache, torch.tensor([4, 1], dtype=index_dtype), k, v)
    assert torch.equal(k_cache[[4, 1]], k)
    assert torch.equal(v_cache[[4, 1]], v)
    assert not k_cache[[0, 2, 3]].any()
    assert not v_cache[[0, 2, 3]].any()


def test_silu_and_mul_gates_the_second_half_by_the_first_and_leaves_both_as_they_were():
    gate_up = torch.randn(3, 10, generator=torch.Generator().manual_seed(0))
    before = gate_up.clone()
    out = torch_ops.silu_and_mul(gate_up)
    assert out.is_contiguous()
    torch.testing.assert_close(out, F.silu(before[:, :5]) * before[:, 5:])
    assert torch.equal(gate_up, before)


def test_gelu_tanh_and_mul_is_gelu_by_its_tanh_formula():
    gate_up = torch.randn(3, 10, generator=torch.Generator().manual_seed(0))
    gate, up = gate_up.double().chunk(2, dim=-1)
    tanh = torch.tanh((2 / torch.pi) ** 0.5 * (gate + 0.044715 * gate**3))
    torch.testing.assert_close(torch_ops.gelu_tanh_and_mul(gate_up), (gate / 2 * (1 + tanh) * up).float())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_soft_cap_bounds_rows_in_place_and_rounds_once(dtype: torch.dtype):
    x = 40 * torch.randn(3, 10, generator=torch.Generator().manual_seed(0)).to(dtype)
    expected = (30 * torch.tanh(x.double() / 30)).to(dtype)
    expected[:, 7:] = x[:, 7:]
    torch_ops.soft_cap(x[:, :7], 30.0)
    torch.testing.assert_close(x, expected, rtol=1e-6 if dtype == torch.float32 else 2**-8, atol=0)


def qkv(num_queries: int, num_keys: int, dtype: torch.dtype, head_dim: int = 24) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(2, 3, n, head_dim) for n in (num_queries, num_keys, num_keys)]
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["plain", "causal", "mask", "mask by query"])
def test_attention_and_its_spelt_out_form_agree(kind: str, dtype: torch.dtype):
    q, k, v = qkv(40, 40, dtype)
    mask = torch.zeros(2, 1, 1, 40)
    mask[1, ..., 30:] = float("-inf")
    by_query = torch.zeros(1, 1, 40, 40).masked_fill(torch.ones(40, 40).triu(5).bool(), float("-inf"))
    options = {"plain": {}, "causal": {"causal": True}, "mask": {"mask": mask}, "mask by query": {"mask": by_query}}
    o, lse = attention(q, k, v, scale=0.3, **options[kind])
    o_spelt_out, lse_spelt_out = attention_by_matmul(q, k, v, scale=0.3, **options[kind])
    assert o.dtype == o_spelt_out.dtype == dtype
    assert lse.dtype == lse_spelt_out.dtype == torch.float32
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(o, o_spelt_out, rtol=0, atol=tolerance)
    torch.testing.assert_close(lse, lse_spelt_out, rtol=0, atol=tolerance)


@pytest.mark.parametrize("softcap", [0.0, 2.0])
def test_the_spelt_out_form_is_the_textbook_formula(softcap: float):
    q, k, v = (x.double() for x in qkv(7, 9, torch.float32))
    o, lse = attention(q.float(), k.float(), v.float(), scale=0.5, softcap=softcap)
    scores = q @ k.transpose(2, 3) * 0.5
    if softcap:
        assert scores.max() > 2
        scores = softcap * torch.tanh(scores / softcap)
    torch.testing.assert_close(o, (scores.softmax(-1) @ v).float(), rtol=0, atol=1e-5)
    torch.testing.assert_close(lse, scores.exp().sum(-1).log().float(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["plain", "causal", "mask", "mask by query"])
def test_query_blocks_do_not_change_the_result(kind: str, monkeypatch: pytest.MonkeyPatch):
    q, k, v = qkv(20, 20, torch.float32)
    mask = torch.randn(1, 1, 20 if kind == "mask by query" else 1, 20, generator=torch.Generator().manual_seed(1))
    attend = partial(attention_by_matmul, scale=0.2, causal=kind == "causal", mask=mask if "mask" in kind else None)
    whole = attend(q, k, v)
    monkeypatch.setattr(torch_ops, "QUERY_BLOCK", 7)
    for blocked, expected in zip(attend(q, k, v), whole, strict=True):
        torch.testing.assert_close(blocked, expected, rtol=0, atol=1e-6)


def test_merged_states_are_attention_to_all_keys():
    q, k, v = qkv(5, 50, torch.float32)
    attend = partial(attention, scale=0.2)
    first, second = (attend(q, k[:, :, part], v[:, :, part]) for part in (slice(0, 17), slice(17, 50)))
    for merged, expected in zip(merge_states(*first, *second), attend(q, k, v), strict=True):
        torch.testing.assert_close(merged, expected, rtol=0, atol=1e-6)


def test_a_sink_takes_its_share_of_the_weights_and_gives_nothing():
    """Scores 0 and log 3 with values 8 and 16, and a sink of score log 4: weights 1/8, 3/8 and 4/8."""
    o, lse = torch.tensor([[[14.0], [14.0]]]), torch.full((1, 2), 4.0).log()
    torch_ops.add_sinks(o, lse, torch.tensor([math.log(4), -math.inf]))
    torch.testing.assert_close(o, torch.tensor([[[7.0], [14.0]]]))


def test_merging_with_attention_to_nothing_changes_nothing():
    o, lse = torch.randn(4, 8), torch.randn(4)
    nothing, never = torch.zeros(4, 8), torch.full((4,), float("-inf"))
    for merged in (merge_states(o, lse, nothing, never), merge_states(nothing, never, o, lse)):
        assert torch.equal(merged[0], o)
        assert torch.equal(merged[1], lse)


def test_merging_survives_scores_too_large_for_exp():
    o1, o2 = torch.zeros(1, 2), torch.ones(1, 2)
    o, lse = merge_states(o1, torch.tensor([5000.0]), o2, torch.tensor([5000.0]))
    assert torch.equal(o, torch.full((1, 2), 0.5))
    assert lse.item() == pytest.approx(5000.0 + 0.6931, abs=1e-2)
