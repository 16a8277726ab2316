"""What a step begins with: the page table's changed cells, and tokens that have never left the device."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from minisgl.kernel.triton.launch import begin_next, programmatic, wait_for_last

_BLOCK = 256


def begin_step(
    page_table: torch.Tensor,
    rows: torch.Tensor,
    cols: torch.Tensor,
    pages: torch.Tensor,
    input_ids: torch.Tensor,
    last: torch.Tensor,
    prev_rows: torch.Tensor,
    prev_tokens: torch.Tensor,
) -> None:
    """As torch_ops.begin_step, in one launch."""
    assert page_table.stride(1) == 1, page_table.stride()
    num_cells, num_rows = len(rows), len(last)
    pdl = programmatic()
    _begin_step[(triton.cdiv(max(num_cells, num_rows), _BLOCK),)](
        page_table, page_table.stride(0), rows, cols, pages, num_cells,
        input_ids, last, prev_rows, prev_tokens, num_rows, BLOCK=_BLOCK, PDL=pdl, launch_pdl=pdl,
    )  # fmt: skip


# Else it would be compiled anew, in the middle of serving, for the first one row or cell and the first multiple of 16.
@triton.jit(do_not_specialize=["num_cells", "num_rows"])
def _begin_step(
    page_table, row_len, rows, cols, pages, num_cells, input_ids, last, prev_rows, prev_tokens, num_rows,
    BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    begin_next(PDL)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    wait_for_last(PDL)
    row = tl.load(rows + at, mask=at < num_cells, other=-1)
    written = row >= 0
    col, page = tl.load(cols + at, mask=written), tl.load(pages + at, mask=written)
    tl.store(page_table + row.to(tl.int64) * row_len + col, page, mask=written)
    prev_row = tl.load(prev_rows + at, mask=at < num_rows, other=-1)
    known_here = prev_row >= 0
    token = tl.load(prev_tokens + prev_row, mask=known_here)
    place = tl.load(last + at, mask=known_here)
    tl.store(input_ids + place, tl.maximum(token, 0), mask=known_here)
