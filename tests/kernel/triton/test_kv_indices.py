"""Lists of page numbers, against the reference."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from minisgl.kernel import torch_ops
from minisgl.kernel.triton.kv_indices import fill_kv_indices

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
RUNS = {  # (row of the table, first page, pages)
    "one page": [(2, 0, 1)],
    "runs of unlike lengths": [(3, 0, 7), (0, 2, 30), (1, 39, 1), (3, 5, 12)],
    "runs of no pages": [(3, 0, 0), (0, 2, 3), (1, 39, 0)],
    "padding": [(1, 3, 4), (-1, 0, 1), (-1, 0, 1)],
    "a run longer than a block": [(0, 0, 3), (4, 1, 1500)],
}


def case(runs: list[tuple[int, int, int]], width: int) -> tuple[torch.Tensor, ...]:
    """page_table, rows, first_pages, indptr, and room for the result with something behind it."""
    rows, first, counts = (np.array(column, np.int32) for column in zip(*runs, strict=True))
    indptr = np.cumsum([0, *counts], dtype=np.int32)
    table = torch.randint(1 << 20, (5, width), dtype=torch.int32)
    out = torch.full((int(indptr[-1]) + 2,), -7, dtype=torch.int32)
    return tuple(x.to(DEVICE) for x in (table, *map(torch.from_numpy, (rows, first, indptr)), out))


@pytest.mark.parametrize("name", RUNS)
def test_pages_are_those_of_the_table(name: str):
    *args, out = case(RUNS[name], width=1600)
    expected = out.clone()
    torch_ops.fill_kv_indices(*args, expected)
    fill_kv_indices(*args, out)
    assert out.tolist() == expected.tolist()
    table, rows, first, indptr = args
    assert out[0] == table[rows[0], first[0]] or indptr[1] == 0
    assert out[-2:].tolist() == [-7, -7]


@pytest.mark.gpu
def test_pages_of_256_long_runs_are_those_of_the_table():
    runs = [(i % 5, i, 1000 + 7 * i) for i in range(256)]
    *args, out = case(runs, width=1 << 14)
    expected = out.clone()
    torch_ops.fill_kv_indices(*args, expected)
    fill_kv_indices(*args, out)
    assert torch.equal(out, expected)
