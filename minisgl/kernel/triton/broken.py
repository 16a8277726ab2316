"""Rows of hidden states that are not finite."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from minisgl.kernel.torch_ops import BROKEN
from minisgl.kernel.triton.launch import begin_next, programmatic, wait_for_last

_WARPS = 4


def mark_broken(hidden: torch.Tensor, tokens: torch.Tensor) -> None:
    """As torch_ops.mark_broken, in one launch: a program a row."""
    assert hidden.stride(1) == 1, hidden.stride()
    assert tokens.is_contiguous()
    if len(tokens) == 0:
        return
    _mark_broken[(len(tokens),)](
        *(hidden, tokens, hidden.stride(0), hidden.shape[1]),
        SIZE=triton.next_power_of_2(hidden.shape[1]),
        BROKEN=BROKEN,
        PDL=programmatic(),
        num_warps=_WARPS,
        launch_pdl=programmatic(),
    )


@triton.jit(do_not_specialize_on_alignment=("tokens",))
def _mark_broken(
    hidden, tokens, row_stride, hidden_size, SIZE: tl.constexpr, BROKEN: tl.constexpr, PDL: tl.constexpr
):  # fmt: skip
    begin_next(PDL)
    row = tl.program_id(0)
    places = tl.arange(0, SIZE)
    wait_for_last(PDL)
    x = tl.load(hidden + row.to(tl.int64) * row_stride + places, mask=places < hidden_size, other=0.0).to(tl.float32)
    is_finite = tl.min((tl.abs(x) < float("inf")).to(tl.int32), axis=0) > 0
    if not is_finite:
        tl.store(tokens + row, BROKEN)
