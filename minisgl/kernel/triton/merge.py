"""Joins what attention to parts of the keys has left for each row.

Shape letters: B rows, N partial results, Hq query heads, D head dim.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from minisgl.kernel.attention_work import Partials
from minisgl.kernel.triton.blocks import absorb_parts, add_sinks
from minisgl.kernel.triton.launch import begin_next, programmatic, wait_for_last

# A head a warp, so that warps join nothing with one another; measured (docs/lab-notes.md).
PARTS_AT_ONCE, HEADS_AT_ONCE, WARPS = 4, 4, 4


@triton.jit
def _merge(
    out, part_o, part_lse, parts, part_begins, sinks,
    NUM_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, AT_ONCE: tl.constexpr,
    HEADS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    begin_next(PDL)
    row = tl.program_id(0)
    begin = tl.load(part_begins + row)
    end = tl.load(part_begins + row + 1)
    index = begin + tl.arange(0, AT_ONCE)
    which = tl.load(parts + index, mask=index < end, other=0)
    wait_for_last(PDL)  # the plan, read so far, is older
    if begin == end:
        return
    heads = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    is_head = heads < NUM_HEADS
    dims = tl.arange(0, BLOCK_D)
    best = tl.full([HEADS], float("-inf"), tl.float32)
    total = tl.zeros([HEADS], tl.float32)
    acc = tl.zeros([HEADS, BLOCK_D], tl.float32)
    for start in range(begin, end, AT_ONCE):
        is_part = start + tl.arange(0, AT_ONCE) < end
        best, total, acc = absorb_parts(
            part_o, part_lse, which, is_part, heads, is_head, dims, best, total, acc, NUM_HEADS, HEAD_DIM
        )
        index = start + AT_ONCE + tl.arange(0, AT_ONCE)
        which = tl.load(parts + index, mask=index < end, other=0)
    o = out + (row * NUM_HEADS + heads)[:, None] * HEAD_DIM + dims[None, :]
    if sinks is not None:
        total = add_sinks(total, best, tl.load(sinks + heads, mask=is_head, other=0.0))
    joined = acc / tl.where(is_head, total, 1.0)[:, None]
    tl.store(o, joined.to(out.dtype.element_ty), mask=is_head[:, None] & (dims < HEAD_DIM)[None, :])


def merge_partials(
    out: torch.Tensor,
    partials: Partials,
    parts: torch.Tensor,
    part_begins: torch.Tensor,
    sinks: torch.Tensor | None = None,
) -> None:
    """See `torch_attention.merge_partials`."""
    _, num_heads, head_dim = partials.o.shape
    pdl = programmatic()
    _merge[(len(part_begins) - 1, triton.cdiv(num_heads, HEADS_AT_ONCE))](
        out, partials.o, partials.lse, parts, part_begins, sinks,
        NUM_HEADS=num_heads, HEAD_DIM=head_dim, BLOCK_D=triton.next_power_of_2(head_dim), AT_ONCE=PARTS_AT_ONCE,
        HEADS=HEADS_AT_ONCE, PDL=pdl, num_warps=WARPS, launch_pdl=pdl,
    )  # fmt: skip
