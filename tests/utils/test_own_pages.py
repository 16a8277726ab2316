"""Memory in pages of its own is memory like any other, while somebody has it."""

from __future__ import annotations

import gc

import pytest
import torch

from minisgl.utils import own_pages

LARGE = (3, 1 << 20)


@pytest.mark.parametrize("shape", [(), (0, 5), (3, 7), LARGE])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_tensor_has_the_shape_and_numbers_that_it_is_given(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    tensor = own_pages.empty(shape, dtype)
    assert tensor.shape == shape
    assert tensor.dtype == dtype
    assert tensor.is_contiguous()
    tensor.fill_(3)
    assert (tensor == 3).all()


def test_a_view_keeps_its_pages() -> None:
    row = own_pages.empty(LARGE, torch.float32).fill_(5)[1]
    gc.collect()
    own_pages.empty(LARGE, torch.float32).fill_(7)
    assert (row == 5).all()
