"""Joins what attention to parts of the keys has left for each row.

Shape letters: B rows, N partial results, Hq query heads, D head dim.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from minisgl.kernel.attention_work import Partials
from minisgl.kernel.triton.launch import begin_next, programmatic, wait_for_last

PARTS_AT_ONCE = 4


@triton.jit
def _merge(
    out, part_o, part_lse, parts, part_begins,
    NUM_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, AT_ONCE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    begin_next(PDL)
    wait_for_last(PDL)
    row = tl.program_id(0) // NUM_HEADS
    head = tl.program_id(0) % NUM_HEADS
    begin = tl.load(part_begins + row)
    end = tl.load(part_begins + row + 1)
    if begin == end:
        return
    dims = tl.arange(0, BLOCK_D)
    best = -float("inf")
    total = 0.0
    acc = tl.zeros([BLOCK_D], tl.float32)
    for start in range(begin, end, AT_ONCE):
        index = start + tl.arange(0, AT_ONCE)
        at = tl.load(parts + index, mask=index < end, other=0) * NUM_HEADS + head
        lse = tl.load(part_lse + at, mask=index < end, other=float("-inf"))
        inside = (index < end)[:, None] & (dims < HEAD_DIM)[None, :]
        o = tl.load(part_o + at[:, None] * HEAD_DIM + dims[None, :], mask=inside, other=0.0)
        new_best = tl.maximum(best, tl.max(lse, 0))
        shift = tl.where(new_best == float("-inf"), 0.0, new_best)
        shrink = tl.exp2(best - shift)
        weights = tl.exp2(lse - shift)
        total = total * shrink + tl.sum(weights, 0)
        acc = acc * shrink + tl.sum(o * weights[:, None], 0)
        best = new_best
    o = out + (row * NUM_HEADS + head) * HEAD_DIM + dims
    tl.store(o, (acc / total).to(out.dtype.element_ty), mask=dims < HEAD_DIM)


def merge_partials(out: torch.Tensor, partials: Partials, parts: torch.Tensor, part_begins: torch.Tensor) -> None:
    """See `torch_attention.merge_partials`."""
    _, num_heads, head_dim = partials.o.shape
    pdl = programmatic() and not partials.beside
    _merge[((len(part_begins) - 1) * num_heads,)](
        out, partials.o, partials.lse, parts, part_begins,
        NUM_HEADS=num_heads, HEAD_DIM=head_dim, BLOCK_D=triton.next_power_of_2(head_dim), AT_ONCE=PARTS_AT_ONCE,
        PDL=pdl, num_warps=1, launch_pdl=pdl,
    )  # fmt: skip
