"""Weights of linear layers on a CPU, put into a kernel's own order once, not at every call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

from minisgl.kernel import has_cpp
from minisgl.kernel.grouped import pack_groups
from minisgl.kernel.linear import GATES, linear
from minisgl.utils.grouped_tensor import GroupedTensor
from minisgl.utils.hardware import cpu_is_intel


class PackedWeight(Protocol):
    """A linear layer that can do nothing but multiply: a weight [out, in], maybe a bias [out], maybe a gate."""

    def multiply(self, x: torch.Tensor) -> torch.Tensor:
        """x [T, in] times the weight, plus the bias: [T, out] of x's dtype; with a gate what that makes of it."""
        ...


def pack_weight(weight: torch.Tensor, bias: torch.Tensor | None = None, gate: str | None = None) -> PackedWeight | None:
    """The same numbers for the fastest kernel that there is; None where plain torch is as fast."""
    return OneDNNWeight(weight, bias, gate) if is_repacked(weight) else None


class GroupedParts:
    """What has come grouped of one weight, until the weight is complete: if all of it has, no float is made."""

    def __init__(self) -> None:
        self._waiting: list[tuple[torch.Tensor, GroupedTensor]] = []  # where it would go, and itself

    def taker(self, dest: torch.Tensor) -> Callable[[GroupedTensor], None] | None:
        """Takes what makes up the rows `dest` of the weight; None where there is no kernel for it."""
        if not has_cpp(dest):
            return None
        return lambda tensor: self._waiting.append((dest, tensor))

    def pack(
        self, weight: torch.Tensor, bias: torch.Tensor | None = None, gate: str | None = None
    ) -> PackedWeight | None:
        """`pack_weight` of the complete weight; parts of it that are grouped go where they belong."""
        parts, self._waiting = self._waiting, []
        if parts and sum(len(dest) for dest, _ in parts) == len(weight):
            in_order = sorted(parts, key=lambda part: part[0].data_ptr())
            return pack_groups([tensor for _, tensor in in_order], weight.dtype, bias, gate)
        for dest, tensor in parts:
            tensor.write_to(same_place(weight, dest))
        return pack_weight(weight, bias, gate)


def same_place(weight: torch.Tensor, dest: torch.Tensor) -> torch.Tensor:
    """The part of `weight` that lies in its memory as `dest` in that of another, or of the same, weight."""
    return weight.as_strided(dest.size(), dest.stride(), dest.storage_offset())


class PlainWeight:
    """A weight as it is, beside others that are packed."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, gate: str | None = None) -> None:
        self._weight, self._bias, self._gate = weight, bias, gate

    def multiply(self, x: torch.Tensor) -> torch.Tensor:
        return linear(x, self._weight, self._bias, self._gate)


class OneDNNWeight:
    """oneDNN's matmul on a copy of the weight."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, gate: str | None) -> None:
        with torch.inference_mode():
            self._packed = torch.ops.mkldnn._reorder_linear_weight(weight)
        self._bias, self._gate = bias, gate

    def multiply(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self._bias, "none", [], "")
        return out if self._gate is None else GATES[self._gate](out)


def is_repacked(weight: torch.Tensor) -> bool:
    """Whether `pack_weight` copies floats like these: for oneDNN, where it has a kernel and torch none that is faster.

    MKL does float32 on Intel's processors: SmolLM2's linears take 21 ms for one row unpacked, 30 packed, and the same
    for 32 rows and more; elsewhere MKL is slow (36 against 24 ms on an AMD Zen 4).
    """
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if weight.device.type != "cpu" or not available:
        return False
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    if weight.dtype == torch.float32:
        return not cpu_is_intel()
    return weight.dtype == torch.bfloat16 and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
