"""Ranks and their shares."""

from __future__ import annotations

import pytest
import torch

from minisgl.distributed import SINGLE, TPInfo, all_gather, all_reduce


def test_ranks_share_evenly():
    assert TPInfo(1, 4).shard("num_qo_heads", 32) == 8


def test_an_uneven_share_is_refused_with_name_and_numbers():
    with pytest.raises(ValueError, match="tensor_parallel_size=3 does not divide num_qo_heads=32"):
        TPInfo(0, 3).shard("num_qo_heads", 32)


@pytest.mark.parametrize(("rank", "size"), [(2, 2), (-1, 2), (0, 0)])
def test_a_rank_outside_its_group_is_refused(rank: int, size: int):
    with pytest.raises(ValueError, match=f"tp_rank={rank} is not within tp_size={size}"):
        TPInfo(rank, size)


def test_one_rank_needs_no_process_group():
    x = torch.ones(2, 3)
    assert all_reduce(x, SINGLE) is x
    assert all_gather(x, SINGLE) is x
    assert SINGLE.least(7) == 7
