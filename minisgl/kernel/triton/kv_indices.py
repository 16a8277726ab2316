"""Page numbers of many runs of the page table, in one list: what kernels that take no page table read."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from minisgl.kernel.triton.launch import begin_next, programmatic, wait_for_last

BLOCK = 1024
# Programs that share a run where there are few runs; few, where there are many.
MAX_SPLITS, MANY_PROGRAMS = 16, 2048


def fill_kv_indices(
    page_table: torch.Tensor, rows: torch.Tensor, first_pages: torch.Tensor, indptr: torch.Tensor, out: torch.Tensor
) -> None:
    """See `torch_ops.fill_kv_indices`."""
    num_runs = rows.shape[0]
    assert page_table.stride(1) == 1, page_table.stride()
    if num_runs > 0:
        splits = min(MAX_SPLITS, triton.cdiv(MANY_PROGRAMS, num_runs))
        _fill_kv_indices[(num_runs, splits)](
            *(page_table, rows, first_pages, indptr, out, page_table.stride(0), BLOCK, programmatic()),
            num_warps=4,
            launch_pdl=programmatic(),
        )


# FlashInfer's backend sends all of these in one piece: where they begin is aligned in one step and not in the next.
@triton.jit(do_not_specialize_on_alignment=["rows_ptr", "first_pages_ptr", "indptr_ptr"])
def _fill_kv_indices(
    table_ptr, rows_ptr, first_pages_ptr, indptr_ptr, out_ptr, table_stride, BLOCK: tl.constexpr, PDL: tl.constexpr
):
    begin_next(PDL)
    run = tl.program_id(0)
    wait_for_last(PDL)
    row = tl.load(rows_ptr + run)
    begin, end = tl.load(indptr_ptr + run), tl.load(indptr_ptr + run + 1)
    source = table_ptr + row.to(tl.int64) * table_stride + tl.load(first_pages_ptr + run)
    start = tl.program_id(1) * BLOCK
    while start < end - begin:
        offsets = start + tl.arange(0, BLOCK)
        inside = offsets < end - begin
        pages = tl.load(source + offsets, mask=inside & (row >= 0), other=0)
        tl.store(out_ptr + begin + offsets, pages, mask=inside)
        start += tl.num_programs(1) * BLOCK
