"""Weights of linear layers on a CPU, put into a kernel's own order once, not at every call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

from minisgl.kernel import has_cpp
from minisgl.kernel.cpu_linear import FloatPanels
from minisgl.kernel.cpu_ops import in_use
from minisgl.kernel.grouped import pack_groups
from minisgl.kernel.int8 import pack_int8
from minisgl.kernel.linear import GATES, linear
from minisgl.kernel.quantizer import quantize
from minisgl.kernel.torch_ops import int8_linear
from minisgl.utils.grouped_tensor import GROUP, GroupedTensor
from minisgl.utils.processor import cpu_is_intel

# Of integers that floats become when they are loaded, by the quantization.
MADE_BITS = {"int8": 8, "int4": 4}


class PackedWeight(Protocol):
    """A linear layer that can do nothing but multiply: a weight [out, in], maybe a bias [out], maybe a gate."""

    def multiply(self, x: torch.Tensor) -> torch.Tensor:
        """x [T, in] times the weight, plus the bias: [T, out] of x's dtype; with a gate what that makes of it."""
        ...


def pack_weight(
    weight: torch.Tensor, bias: torch.Tensor | None = None, gate: str | None = None, deterministic: bool = True
) -> PackedWeight | None:
    """The same numbers for our own kernel, if that is wanted, or for the fastest; None where that is plain torch's."""
    if deterministic and has_cpp(weight):
        panels = FloatPanels((weight.shape[0], weight.shape[1]), weight.dtype, gate)
        panels.write(0, weight)
        return panels.finish(bias)
    return OneDNNWeight(weight, bias, gate) if is_repacked(weight) else None


class GroupedParts:
    """What has come grouped of one weight, until the weight is complete: if all of it has, no float is made.

    quantization, deterministic: as of Placement.
    """

    def __init__(self, quantization: str = "none", deterministic: bool = True) -> None:
        self._deterministic = deterministic
        self._quantization, self._bits = quantization, MADE_BITS.get(quantization, 8)
        self._waiting: list[tuple[torch.Tensor, GroupedTensor]] = []  # where it would go, and itself
        self._panels: FloatPanels | None = None  # what has come in floats, if that is packed as it comes

    def taker(self, dest: torch.Tensor) -> Callable[[GroupedTensor], None] | None:
        """Takes what makes up the rows `dest` of the weight; None where there is no kernel for it."""
        if self._quantization == "none" and not has_cpp(dest):
            return None
        return lambda tensor: self._waiting.append((dest, in_bits(tensor, self._bits)))

    def quantizer(self, dest: torch.Tensor) -> Callable[[torch.Tensor], None] | None:
        """Takes floats for the rows `dest` of the weight and makes integers of them; None where they stay floats."""
        if self._quantization not in MADE_BITS:
            return None
        if dest.shape[1] % GROUP:
            what = f"a layer of {dest.shape[1]} inputs, which are no whole groups of {GROUP}"
            raise ValueError(f"quantization={self._quantization!r} cannot take {what}")
        return lambda tensor: self._waiting.append((dest, quantize(tensor, self._bits)))

    def float_packer(
        self, weight: torch.Tensor, dest: torch.Tensor, gate: str | None = None
    ) -> Callable[[torch.Tensor], None] | None:
        """Takes floats for the rows `dest` of the weight and packs them; None where there is no kernel for it."""
        if self._quantization in MADE_BITS or not (self._deterministic and has_cpp(weight)):
            return None

        def take(tensor: torch.Tensor) -> None:
            if self._panels is None:
                self._panels = FloatPanels((weight.shape[0], weight.shape[1]), weight.dtype, gate)
            self._panels.write(row_of(weight, dest), tensor if tensor.stride(1) == 1 else tensor.contiguous())

        return take

    def pack(
        self, weight: torch.Tensor, bias: torch.Tensor | None = None, gate: str | None = None
    ) -> PackedWeight | None:
        """`pack_weight` of the complete weight; parts of it that are grouped go where they belong."""
        parts, self._waiting = self._waiting, []
        panels, self._panels = self._panels, None
        if parts and sum(len(dest) for dest, _ in parts) == len(weight):
            in_order = sorted(parts, key=lambda part: part[0].data_ptr())
            return self._pack([tensor for _, tensor in in_order], weight.dtype, bias, gate)
        if panels is not None:
            for dest, tensor in parts:
                panels.write(row_of(weight, dest), tensor.dequantize())
            return panels.finish(bias)
        for dest, tensor in parts:
            tensor.write_to(same_place(weight, dest))
        return pack_weight(weight, bias, gate, self._deterministic)

    def _pack(
        self, parts: list[GroupedTensor], dtype: torch.dtype, bias: torch.Tensor | None, gate: str | None
    ) -> PackedWeight:
        if self._quantization == "none":
            return pack_groups(parts, dtype, bias, gate)
        return (pack_int8 if in_use() else Int8Weight)(parts, dtype, bias, gate)


def in_bits(tensor: GroupedTensor, most: int) -> GroupedTensor:
    """In at most so many bits a code: as it is, or quantised anew."""
    return tensor if tensor.bits <= most else quantize(tensor.dequantize(), most)


def row_of(weight: torch.Tensor, dest: torch.Tensor) -> int:
    """Which row of the weight, a dense matrix, its rows `dest` begin with."""
    return (dest.storage_offset() - weight.storage_offset()) // weight.shape[1]


def same_place(weight: torch.Tensor, dest: torch.Tensor) -> torch.Tensor:
    """The part of `weight` that lies in its memory as `dest` in that of another, or of the same, weight."""
    return weight.as_strided(dest.size(), dest.stride(), dest.storage_offset())


class PlainWeight:
    """A weight as it is, beside others that are packed."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, gate: str | None = None) -> None:
        self._weight, self._bias, self._gate = weight, bias, gate

    def multiply(self, x: torch.Tensor) -> torch.Tensor:
        return linear(x, self._weight, self._bias, self._gate)


class Int8Weight:
    """What `pack_int8` makes, in plain torch: the same numbers within rounding, but slow."""

    def __init__(
        self, parts: list[GroupedTensor], dtype: torch.dtype, bias: torch.Tensor | None, gate: str | None
    ) -> None:
        self._parts, self._bias, self._gate = parts, bias, gate

    def multiply(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.cat([int8_linear(x, part, None) for part in self._parts], dim=1)
        out = out if self._bias is None else out + self._bias
        return out if self._gate is None else GATES[self._gate](out)


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
