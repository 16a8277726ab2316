"""Floats to groups of integers: how far off they are, and what no division may spoil."""

from __future__ import annotations

import pytest
import torch

from minisgl.utils.group_quantizer import quantize
from minisgl.utils.grouped_tensor import GROUP

BITS = pytest.mark.parametrize("bits", [4, 8])


def random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def error(values: torch.Tensor, bits: int) -> float:
    return float((quantize(values, bits).dequantize() - values).norm() / values.norm())


def test_8_bits_are_half_a_step_off_at_most():
    values = random(40, 96)
    steps = values.view(40, -1, GROUP).abs().amax(-1) / 127
    off = (quantize(values, bits=8).dequantize() - values).view(40, -1, GROUP).abs().amax(-1)
    assert (off <= steps * 0.57).all()  # the scale is rounded to float16, too: 127 steps are off by 2^-11 of it each
    assert error(values, bits=8) < 0.006


def test_4_bits_of_random_numbers_are_8_percent_off():
    assert error(random(400, 96), bits=4) < 0.08


def test_16_numbers_at_even_steps_are_kept_by_4_bits():
    values = (torch.arange(2 * GROUP) % 16).float().view(2, GROUP) * 0.25 - 1.5
    assert torch.equal(quantize(values, bits=4).dequantize(), values)


@BITS
def test_zeros_and_numbers_all_alike_are_kept(bits: int):
    values = torch.cat([torch.zeros(2, GROUP), torch.full((2, GROUP), 0.5), torch.full((2, GROUP), -3.0)])
    torch.testing.assert_close(quantize(values, bits).dequantize(), values, rtol=1e-3, atol=0)


@BITS
@pytest.mark.parametrize("factor", [1e-7, 1e6])
def test_numbers_that_float16_has_not_are_as_near_as_others(factor: float, bits: int):
    assert error(random(40, 96) * factor, bits) < (0.006 if bits == 8 else 0.08)


@BITS
def test_scales_are_numbers_of_float16(bits: int):
    found = quantize(random(40, 96), bits)
    for numbers in (found.scale, found.offset):
        assert torch.equal(numbers.half().float(), numbers)


@BITS
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_any_floats_are_taken(dtype: torch.dtype, bits: int):
    values = random(8, 64).to(dtype)
    assert torch.equal(quantize(values, bits).codes, quantize(values.float(), bits).codes)


@BITS
def test_a_stack_is_its_matrices(bits: int):
    stack = random(3, 8, 64)
    found = quantize(stack, bits)
    assert found.shape == stack.shape
    for i in range(3):
        assert torch.equal(
            found.map_rows(lambda part, i=i: part[i]).dequantize(), quantize(stack[i], bits).dequantize()
        )
