"""Floats to groups of integers in C++: to the bit what torch makes of them."""

from __future__ import annotations

import pytest
import torch
from support.needs import CPP_KERNELS

from minisgl.kernel.quantizer import quantize
from minisgl.utils import group_quantizer

pytestmark = [
    CPP_KERNELS,
    pytest.mark.usefixtures("instruction_set"),
]

BITS = pytest.mark.parametrize("bits", [4, 8])
MOST = torch.finfo(torch.float32).max


def random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def assert_same(values: torch.Tensor, bits: int) -> None:
    got, expected = quantize(values, bits), group_quantizer.quantize(values, bits)
    assert torch.equal(got.codes, expected.codes)
    for ours, theirs in ((got.scale, expected.scale), (got.offset, expected.offset)):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
    assert got.bits == expected.bits


@BITS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("factor", [1, 0.02, 1e-7, 1e6])
def test_random_numbers(factor: float, dtype: torch.dtype, bits: int):
    assert_same((random(300, 160) * factor).to(dtype), bits)


@BITS
def test_groups_that_divisions_could_spoil(bits: int):
    values = random(12, 64)
    values[0], values[1], values[2], values[3] = 0, -0.0, 1e-45, MOST
    values[4] = values[4].sign() * MOST
    values[5] = 1000 + values[5] * 1e-4
    values[6] = torch.randint(-3, 4, (64,), generator=torch.Generator().manual_seed(0))
    values[7, 3], values[8, 9], values[9, 63] = torch.nan, torch.inf, -torch.inf
    values[10] *= 1e-40
    values[11] = torch.where(values[11] > 0, 0.5, -0.5)
    assert_same(values, bits)


@BITS
def test_a_number_that_is_none_is_seen_in_its_group_and_no_other(bits: int):
    values = random(3, 96)
    values[0, 5], values[2, 95] = torch.nan, torch.inf
    bad = quantize(values, bits).dequantize().isnan().view(3, 3, 32)
    assert bad.all(-1).nonzero().tolist() == [[0, 0], [2, 2]]
    assert bad.sum() == 64


@BITS
def test_rows_apart_columns_and_stacks(bits: int):
    values = random(5, 3, 128)
    for view in (values, values[:, :, 32:96], values[:, 1], values.transpose(0, 2)[:, :, 0].T, values[:0]):
        assert_same(view, bits)
        assert quantize(view, bits).shape == view.shape
