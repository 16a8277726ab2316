"""Root-mean-square norms: one pass, a row in registers."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from minisgl.kernel.triton.launch import begin_next, programmatic, wait_for_last

# Elements a program works on at least: short rows (heads) share one.
TILE = 1024


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    assert x.dim() in (2, 3), x.shape
    assert x.stride(-1) == 1, x.stride()
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    heads, head_stride = (x.shape[1], x.stride(1)) if x.dim() == 3 else (1, 0)
    num_rows, block, rows, num_warps = _tiles(x)
    if num_rows == 0:
        return out
    _rms_norm[(triton.cdiv(num_rows, rows),)](
        *(x, weight, out, num_rows, heads, x.stride(0), head_stride, eps, x.shape[-1], block, rows, programmatic()),
        num_warps=num_warps,
        launch_pdl=programmatic(),
    )
    return out


def add_rms_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    assert x.is_contiguous(), x.stride()
    assert residual.is_contiguous(), residual.stride()
    assert x.shape == residual.shape, (x.shape, residual.shape)
    num_rows, block, rows, num_warps = _tiles(x)
    if num_rows == 0:
        return x
    _add_rms_norm[(triton.cdiv(num_rows, rows),)](
        *(x, residual, weight, num_rows, eps, x.shape[-1], block, rows, programmatic()),
        num_warps=num_warps,
        launch_pdl=programmatic(),
    )
    return x


def _tiles(x: torch.Tensor) -> tuple[int, int, int, int]:
    """(rows in all, elements of a row with padding, rows a program, warps a program) for norms over x's last dim."""
    size = x.shape[-1]
    block: int = triton.next_power_of_2(size)
    rows = max(1, TILE // block)
    return x.numel() // size, block, rows, min(8, max(1, block * rows // 256))


@triton.jit(do_not_specialize=["num_rows"])
def _rms_norm(
    x_ptr,
    weight_ptr,
    out_ptr,
    num_rows,
    heads,
    token_stride,
    head_stride,
    eps,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    PDL: tl.constexpr,
):
    begin_next(PDL)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    inside = columns < SIZE
    mask = (rows < num_rows)[:, None] & inside[None, :]
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    offsets = (rows // heads).to(tl.int64) * token_stride + (rows % heads) * head_stride
    wait_for_last(PDL)
    x = tl.load(x_ptr + offsets[:, None] + columns[None, :], mask=mask, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=1) / SIZE + eps)
    y = x * scale[:, None] * weight[None, :]
    tl.store(out_ptr + rows.to(tl.int64)[:, None] * SIZE + columns[None, :], y.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["num_rows"])
def _add_rms_norm(
    x_ptr,
    residual_ptr,
    weight_ptr,
    num_rows,
    eps,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    PDL: tl.constexpr,
):
    """The norm takes the place of x, the sum that of residual."""
    begin_next(PDL)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    inside = columns < SIZE
    mask = (rows < num_rows)[:, None] & inside[None, :]
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    offsets = rows.to(tl.int64)[:, None] * SIZE + columns[None, :]
    wait_for_last(PDL)
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    x += tl.load(residual_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    rounded = x.to(residual_ptr.dtype.element_ty)
    tl.store(residual_ptr + offsets, rounded, mask=mask)
    x = rounded.to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=1) / SIZE + eps)
    y = x * scale[:, None] * weight[None, :]
    tl.store(x_ptr + offsets, y.to(x_ptr.dtype.element_ty), mask=mask)
