"""Memory in pages of its own is memory like any other, while somebody has it."""

from __future__ import annotations

import gc
import weakref

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


def test_scratch_gives_again_what_was_given_back_and_nothing_that_is_in_use() -> None:
    scratch, like = own_pages.Scratch(), torch.empty(LARGE)
    first, second = scratch.take(like), scratch.take(like)
    assert first.data_ptr() != second.data_ptr()
    scratch.give_back(first)
    assert scratch.take(like[:1]).shape == like[:1].shape
    assert scratch.take(like.bfloat16()).dtype == torch.bfloat16
    assert scratch.take(like) is first


def test_scratch_keeps_nothing_when_it_is_cleared() -> None:
    scratch = own_pages.Scratch()
    tensor = scratch.take(torch.empty(LARGE))
    scratch.give_back(tensor)
    gone = weakref.ref(tensor)
    del tensor
    assert gone() is not None
    scratch.clear()
    assert gone() is None
