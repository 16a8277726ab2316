"""Weights of linear layers on a CPU, put into a kernel's own order once, not at every call."""

from __future__ import annotations

from typing import Protocol

import torch

from minisgl.kernel import has_cpp
from minisgl.kernel.grouped import grouped_linear, pack_groups
from minisgl.utils.grouped_tensor import GroupedTensor
from minisgl.utils.hardware import cpu_is_intel


class PackedWeight(Protocol):
    """A weight [out, in] that can do nothing but multiply."""

    def multiply(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """x [T, in] times the weight, plus bias: [T, out] of x's dtype."""
        ...


def pack_weight(weight: torch.Tensor, groups: GroupedTensor | None = None) -> PackedWeight | None:
    """The same numbers for the fastest kernel that there is; None where plain torch is as fast.

    groups: the whole weight as the checkpoint has it; `weight` is not looked at then.
    """
    if groups is not None and has_cpp(weight):
        return GroupedWeight(groups)
    return OneDNNWeight(weight) if _has_onednn(weight.device, weight.dtype) else None


class GroupedWeight:
    """Our own kernel, which makes floats of the codes while it multiplies."""

    def __init__(self, groups: GroupedTensor) -> None:
        self._packed = pack_groups(groups)

    def multiply(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return grouped_linear(x, self._packed, bias)


class OneDNNWeight:
    """oneDNN's matmul on a copy of the weight."""

    def __init__(self, weight: torch.Tensor) -> None:
        with torch.inference_mode():
            self._packed = torch.ops.mkldnn._reorder_linear_weight(weight)

    def multiply(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, bias, "none", [], "")
        return out


def _has_onednn(device: torch.device, dtype: torch.dtype) -> bool:
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
