"""RMSNorm: the result of transformers, within one rounding."""

from __future__ import annotations

import torch
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from minisgl.layers import Placement, RMSNorm, ShardedRMSNorm

GENERATOR = torch.Generator().manual_seed(0)
X, WEIGHT = torch.randn(7, 64, generator=GENERATOR) * 3, torch.rand(64, generator=GENERATOR) + 0.5


def norms(dtype: torch.dtype) -> tuple[RMSNorm, LlamaRMSNorm]:
    ours, theirs = RMSNorm(64, 1e-2, Placement(dtype, torch.device("cpu"))), LlamaRMSNorm(64, 1e-2).to(dtype)
    ours.slots()["weight"].load("weight", WEIGHT)
    theirs.weight.data.copy_(WEIGHT)
    return ours, theirs.requires_grad_(False)


def test_float32_equals_transformers():
    ours, theirs = norms(torch.float32)
    torch.testing.assert_close(ours(X), theirs(X), rtol=1e-6, atol=1e-6)


def test_bfloat16_is_within_one_rounding_of_transformers():
    ours, theirs = norms(torch.bfloat16)
    x = X.bfloat16()
    torch.testing.assert_close(ours(x), theirs(x), rtol=2**-7, atol=0)


def test_adding_before_the_norm_updates_the_residual_in_place():
    norm, _ = norms(torch.float32)
    residual, expected = torch.ones(7, 64), X + 1
    normed, same = norm.add_and_norm(X.clone(), residual)
    assert same is residual
    assert torch.equal(residual, expected)
    assert torch.equal(normed, norm(expected))


def test_without_a_residual_the_input_starts_one():
    norm, _ = norms(torch.float32)
    normed, residual = norm.add_and_norm(X, None)
    assert residual is X
    assert torch.equal(normed, norm(X))


def test_a_sharded_norm_of_one_rank_is_a_norm_of_rows_apart():
    norm, theirs = ShardedRMSNorm(48, 1e-2, Placement(torch.float32, torch.device("cpu"))), LlamaRMSNorm(48, 1e-2)
    norm.slots()["weight"].load("weight", WEIGHT[:48])
    theirs.weight.data.copy_(WEIGHT[:48])
    torch.testing.assert_close(norm(X[:, :48]), theirs.requires_grad_(False)(X[:, :48]), rtol=1e-6, atol=1e-6)
