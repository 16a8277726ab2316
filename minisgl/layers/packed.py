"""oneDNN's prepacked matmul on a CPU: the weight is put into the kernel's own order once, not at every call."""

from __future__ import annotations

import torch

from minisgl.utils.hardware import cpu_is_intel


def can_pack(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether this build of torch and this processor have the fast kernel for the dtype, and none that is faster.

    MKL does float32 on Intel's processors: SmolLM2's linears take 21 ms for one row unpacked, 30 packed, and the same
    for 32 rows and more; elsewhere MKL is slow (36 against 24 ms on an AMD Zen 4).
    """
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if device.type != "cpu" or not available:
        return False
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    if dtype == torch.float32:
        return not cpu_is_intel()
    return dtype == torch.bfloat16 and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def pack_weight(weight: torch.Tensor) -> torch.Tensor | None:
    """A copy of `weight` [out, in] for `packed_linear` and nothing else, or None where there is no such kernel."""
    if not can_pack(weight.device, weight.dtype):
        return None
    with torch.inference_mode():
        packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(weight)
    return packed


def packed_linear(x: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """x [T, in] times a packed weight, plus bias: [T, out]."""
    out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
    return out
