"""Matrices of small integers with scales: parts of them are the parts of their values."""

from __future__ import annotations

import pytest
import torch

from minisgl.utils import grouped_tensor
from minisgl.utils.grouped_tensor import GroupedTensor, dense


def random_grouped(rows: int, columns: int, bits: int, seed: int = 0) -> GroupedTensor:
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, 2**bits, (rows, columns), dtype=torch.uint8, generator=generator)
    scale, offset = torch.randn(2, rows, columns // 32, generator=generator)
    return GroupedTensor(codes, scale, offset, bits)


def test_a_value_is_scale_times_code_plus_offset():
    codes = torch.arange(64, dtype=torch.uint8)[None]
    tensor = GroupedTensor(codes, torch.tensor([[2.0, 10.0]]), torch.tensor([[-1.0, 0.5]]), bits=8)
    assert tensor.dequantize()[0, [0, 31, 32, 63]].tolist() == [-1.0, 61.0, 320.5, 630.5]


def test_rows_and_whole_groups_of_columns_stay_grouped():
    tensor = random_grouped(6, 96, bits=4)
    for dim, start, length in ((0, 2, 3), (1, 32, 64)):
        part = tensor.narrow(dim, start, length)
        assert isinstance(part, GroupedTensor)
        assert torch.equal(part.dequantize(), tensor.dequantize().narrow(dim, start, length))


def test_a_cut_through_a_group_gives_the_values():
    tensor = random_grouped(6, 96, bits=4)
    assert torch.equal(dense(tensor.narrow(1, 48, 48)), tensor.dequantize()[:, 48:])


def test_matrices_of_a_stack_are_grouped_like_the_stack():
    matrices = [random_grouped(3, 64, bits=4, seed=seed) for seed in range(2)]
    parts = (torch.stack([getattr(m, name) for m in matrices]) for name in ("codes", "scale", "offset"))
    stack = GroupedTensor(*parts, bits=4)
    assert torch.equal(stack.dequantize(), torch.stack([m.dequantize() for m in matrices]))
    assert torch.equal(stack.map_rows(lambda part: part[1]).dequantize(), matrices[1].dequantize())


@pytest.mark.parametrize("piece", [1, 200, 2**22])
def test_values_are_written_the_same_whole_and_in_pieces(piece: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(grouped_tensor, "_PIECE", piece)
    tensor, dest = random_grouped(7, 96, bits=4), torch.zeros(7, 96, dtype=torch.bfloat16)
    tensor.write_to(dest)
    assert torch.equal(dest, tensor.dequantize().bfloat16())
