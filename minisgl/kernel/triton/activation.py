"""The gate of a gated MLP."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from minisgl.kernel.triton.launch import begin_next, programmatic, wait_for_last

BLOCK = 1024


def silu_and_mul(gate_up: torch.Tensor) -> torch.Tensor:
    assert gate_up.is_contiguous(), gate_up.stride()
    tokens, size = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty((tokens, size), dtype=gate_up.dtype, device=gate_up.device)
    if tokens > 0:
        _silu_and_mul[(tokens, triton.cdiv(size, BLOCK))](
            *(gate_up, out, size, BLOCK, programmatic()), num_warps=4, launch_pdl=programmatic()
        )
    return out


@triton.jit
def silu(x):
    """x * sigmoid(x), of float32."""
    return x / (1.0 + tl.exp(-x))


@triton.jit
def _silu_and_mul(gate_up_ptr, out_ptr, size, BLOCK: tl.constexpr, PDL: tl.constexpr):
    begin_next(PDL)
    token = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < size
    wait_for_last(PDL)
    gate = tl.load(gate_up_ptr + token * 2 * size + columns, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(gate_up_ptr + token * 2 * size + size + columns, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + token * size + columns, (silu(gate) * up).to(out_ptr.dtype.element_ty), mask=mask)
