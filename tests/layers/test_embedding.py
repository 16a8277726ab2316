"""Embedding and head: each rank holds a share of the vocabulary."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from support.packed import is_grouped

from minisgl.distributed import SINGLE, TPInfo
from minisgl.kernel import has_cpp
from minisgl.layers import LMHead, Placement, VocabParallelEmbedding
from minisgl.utils.grouped_tensor import GroupedTensor

TABLE = torch.randn(12, 8, generator=torch.Generator().manual_seed(0))
IDS = torch.tensor([0, 11, 5, 6, 5], dtype=torch.int32)


def place(tp: TPInfo) -> Placement:
    return Placement(torch.float32, torch.device("cpu"), tp)


def embedding(tp: TPInfo) -> VocabParallelEmbedding:
    layer = VocabParallelEmbedding(12, 8, place(tp))
    layer.slots()["weight"].load("weight", TABLE)
    return layer


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_ids_become_rows_of_the_table(dtype: torch.dtype):
    assert torch.equal(embedding(SINGLE)(IDS.to(dtype)), TABLE[IDS])


@pytest.mark.parametrize("tp_size", [2, 3, 5, 13])
def test_partial_look_ups_add_up_to_the_whole(tp_size: int):
    total = sum(embedding(TPInfo(rank, tp_size)).partial(IDS) for rank in range(tp_size))
    assert torch.equal(total, TABLE[IDS])


@pytest.mark.parametrize("tp_size", [2, 5, 13])
@pytest.mark.parametrize("tied", [False, True])
def test_shares_of_the_head_side_by_side_are_the_logits_and_then_zeros(tied: bool, tp_size: int):
    hidden = torch.randn(4, 8)
    shares = []
    for rank in range(tp_size):
        tp = TPInfo(rank, tp_size)
        head = LMHead(12, 8, place(tp), embedding(tp) if tied else None)
        for slot in head.slots().values():
            slot.load("weight", TABLE)
        head.pack()
        shares.append(head.multiply(hidden))
    logits, beyond = torch.cat(shares, dim=-1).split([12, sum(share.shape[1] for share in shares) - 12], dim=-1)
    torch.testing.assert_close(logits, F.linear(hidden, TABLE))
    assert not beyond.any()


def test_logits_have_the_dtype_of_the_model():
    head = LMHead(12, 8, Placement(torch.bfloat16, torch.device("cpu")))
    head.slots()["weight"].load("weight", TABLE)
    assert head(torch.ones(3, 8, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_packing_a_tied_head_leaves_the_embedding_its_weight():
    table = embedding(SINGLE)
    LMHead(12, 8, place(SINGLE), table).pack()
    assert torch.equal(table(IDS), TABLE[IDS])


@pytest.mark.skipif(not has_cpp(torch.empty(0)), reason="no C++ kernels here")
def test_an_embedding_and_the_head_that_is_tied_to_it_keep_the_integers_that_came():
    codes = torch.randint(0, 256, (12, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    weight = GroupedTensor(codes, torch.full((12, 2), 0.01), torch.full((12, 2), -1.28), bits=8)
    table = VocabParallelEmbedding(12, 64, place(SINGLE))
    head = LMHead(12, 64, place(SINGLE), table)
    table.slots()["weight"].load("token_embd", weight)
    for layer in (table, head):
        layer.pack()
    values = weight.dequantize()
    assert is_grouped(head.packed)
    assert table.weight is None
    assert torch.equal(table(torch.arange(12)), values)
    torch.testing.assert_close(head(values[:3]), values[:3] @ values.T)
