"""The gate of a gated MLP, and what bounds logits."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from minisgl.kernel.triton.launch import begin_next, programmatic, wait_for_last

BLOCK = 1024


def silu_and_mul(gate_up: torch.Tensor) -> torch.Tensor:
    return _gate_and_mul(gate_up, "silu")


def gelu_tanh_and_mul(gate_up: torch.Tensor) -> torch.Tensor:
    return _gate_and_mul(gate_up, "gelu_pytorch_tanh")


def soft_cap(x: torch.Tensor, cap: float) -> None:
    assert x.stride(1) == 1, x.stride()
    rows, size = x.shape
    if rows > 0:
        _soft_cap[(rows, triton.cdiv(size, BLOCK))](
            *(x, x.stride(0), size, cap, BLOCK, programmatic()), num_warps=4, launch_pdl=programmatic()
        )


def _gate_and_mul(gate_up: torch.Tensor, gate: str) -> torch.Tensor:
    assert gate_up.is_contiguous(), gate_up.stride()
    tokens, size = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty((tokens, size), dtype=gate_up.dtype, device=gate_up.device)
    if tokens > 0:
        _activate_and_mul[(tokens, triton.cdiv(size, BLOCK))](
            *(gate_up, out, size, gate, BLOCK, programmatic()), num_warps=4, launch_pdl=programmatic()
        )
    return out


@triton.jit
def silu(x):
    """x * sigmoid(x), of float32."""
    return x / (1.0 + tl.exp(-x))


@triton.jit
def gelu_tanh(x):
    """x / 2 * (1 + tanh(y)) with y = sqrt(2 / pi) * (x + 0.044715 x^3), of float32, as x * sigmoid(2 y)."""
    return x / (1.0 + tl.exp(-1.5957691216057308 * x * (1.0 + 0.044715 * x * x)))


@triton.jit
def activate(x, GATE: tl.constexpr):
    """x of float32 by the activation that Hugging Face calls GATE."""
    tl.static_assert(GATE == "silu" or GATE == "gelu_pytorch_tanh")
    return silu(x) if GATE == "silu" else gelu_tanh(x)


@triton.jit
def _activate_and_mul(gate_up_ptr, out_ptr, size, GATE: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr):
    begin_next(PDL)
    token = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < size
    wait_for_last(PDL)
    gate = tl.load(gate_up_ptr + token * 2 * size + columns, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(gate_up_ptr + token * 2 * size + size + columns, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + token * size + columns, (activate(gate, GATE) * up).to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["cap"])
def _soft_cap(x_ptr, row_stride, size, cap, BLOCK: tl.constexpr, PDL: tl.constexpr):
    begin_next(PDL)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    at = x_ptr + tl.program_id(0).to(tl.int64) * row_stride + columns
    mask = columns < size
    wait_for_last(PDL)
    x = tl.load(at, mask=mask, other=0.0).to(tl.float32)
    tanh = 1.0 - 2.0 / (1.0 + tl.exp(2.0 / cap * x))
    tl.store(at, (cap * tanh).to(x_ptr.dtype.element_ty), mask=mask)
