"""Rows of hidden states that are not finite."""

from __future__ import annotations

import math

import pytest
import torch

from minisgl.kernel import torch_ops
from minisgl.kernel.torch_ops import BROKEN
from minisgl.kernel.triton.broken import mark_broken

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("hidden_size", [1, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rows_with_nan_or_infinity_are_marked(dtype: torch.dtype, hidden_size: int):
    hidden = torch.ones(5, hidden_size + 3, dtype=dtype, device=DEVICE)[:, :hidden_size]
    for row, value in ((1, math.nan), (2, math.inf), (4, -math.inf)):
        hidden[row, hidden_size - 1] = value
    tokens, expected = (torch.arange(5, dtype=torch.int32, device=DEVICE) for _ in range(2))
    mark_broken(hidden, tokens)
    torch_ops.mark_broken(hidden, expected)
    assert tokens.tolist() == expected.tolist() == [0, BROKEN, BROKEN, 3, BROKEN]


def test_no_rows_are_fine():
    mark_broken(torch.empty(0, 4, device=DEVICE), torch.empty(0, dtype=torch.int32, device=DEVICE))


@pytest.mark.gpu
@pytest.mark.parametrize("hidden_size", [1024, 4096, 5120])
def test_one_bad_number_of_many_is_found_on_a_gpu(hidden_size: int):
    hidden = torch.randn(256, hidden_size, device="cuda", dtype=torch.bfloat16)
    tokens = torch.zeros(256, dtype=torch.int32, device="cuda")
    for row in range(0, 256, 3):
        hidden[row, (row * 37) % hidden_size] = math.nan
    mark_broken(hidden, tokens)
    assert tokens.tolist() == [BROKEN if row % 3 == 0 else 0 for row in range(256)]
