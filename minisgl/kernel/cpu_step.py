"""What a step does before and after its layers, as in torch_ops, in C++ (csrc/step.h)."""

from __future__ import annotations

import torch

from minisgl.kernel.cpu_library import functions, is_dense
from minisgl.kernel.torch_ops import BROKEN


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
    for x in (page_table, rows, cols, pages, input_ids, last, prev_rows, prev_tokens):
        assert is_dense(x, x.shape, torch.int32), (x.shape, x.dtype)
    assert len(rows) <= min(len(cols), len(pages)), (rows.shape, cols.shape, pages.shape)
    assert last.shape == prev_rows.shape, (last.shape, prev_rows.shape)
    functions()["begin_step", torch.int32](
        *(page_table.data_ptr(), page_table.shape[1], rows.data_ptr(), cols.data_ptr(), pages.data_ptr(), len(rows)),
        *(input_ids.data_ptr(), last.data_ptr(), prev_rows.data_ptr(), prev_tokens.data_ptr(), len(last)),
    )


def rotary_turns(
    inv_freq: torch.Tensor, positions: torch.Tensor, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    half, tokens = len(inv_freq), len(positions)
    positions = positions.int()
    assert is_dense(inv_freq, (half,), torch.float32), (inv_freq.shape, inv_freq.dtype)
    assert positions.is_contiguous(), positions.stride()
    cos, sin = (torch.empty(tokens, 1, 2 * half, dtype=dtype) for _ in range(2))
    functions()["rotary_turns", dtype](
        *(inv_freq.data_ptr(), half, positions.data_ptr(), tokens),
        *(cos.data_ptr(), sin.data_ptr(), torch.get_num_threads()),
    )
    return cos, sin


def look_up(
    scale: torch.Tensor, offset: torch.Tensor, codes: torch.Tensor, ids: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    (rows, size), (_, groups) = codes.shape, scale.shape
    ids = ids.int()
    assert is_dense(codes, (rows, size), torch.uint8), (codes.shape, codes.dtype)
    for x in (scale, offset):
        assert is_dense(x, (rows, groups), torch.float32), (x.shape, x.dtype, codes.shape)
    assert size % groups == 0, (codes.shape, scale.shape)
    assert ids.is_contiguous(), ids.stride()
    out = torch.empty(len(ids), size, dtype=dtype)
    functions()["look_up", dtype](
        *(codes.data_ptr(), scale.data_ptr(), offset.data_ptr(), ids.data_ptr(), len(ids)),
        *(size, size // groups, out.data_ptr(), torch.get_num_threads()),
    )
    return out


def best_tokens(logits: torch.Tensor) -> torch.Tensor:
    rows, size = logits.shape
    assert logits.stride(1) == 1, logits.stride()
    tokens = torch.empty(rows, dtype=torch.int32)
    functions()["best_tokens", logits.dtype](
        *(logits.data_ptr(), rows, size, logits.stride(0), tokens.data_ptr(), torch.get_num_threads())
    )
    return tokens


def mark_broken(hidden: torch.Tensor, tokens: torch.Tensor) -> None:
    rows, size = hidden.shape
    assert hidden.stride(1) == 1, hidden.stride()
    assert is_dense(tokens, (rows,), torch.int32), (tokens.shape, tokens.dtype, hidden.shape)
    functions()["mark_broken", hidden.dtype](
        *(hidden.data_ptr(), rows, size, hidden.stride(0), tokens.data_ptr(), BROKEN)
    )
