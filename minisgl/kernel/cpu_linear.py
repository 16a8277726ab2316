"""Linear layers in C++ on a CPU, on weights in the kernels' own order: one call for product, bias and gate.

Sums are float32. Those of a row run in one order, and do not depend on the rows beside it or the number of threads.
"""

from __future__ import annotations

import ctypes
import math
from enum import IntEnum

import torch

from minisgl.kernel.cpu_library import functions, is_dense
from minisgl.utils.grouped_tensor import GROUP
from minisgl.utils.math import div_ceil

PANEL = 32  # outputs that lie side by side, as in csrc/grouped_weight.h
GATES = {None: 0, "silu": 1, "gelu_pytorch_tanh": 2}  # by the names that Hugging Face has, as in csrc/panel_linear.h
SOURCES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}


class Kind(IntEnum):
    """What a packed weight is made of, as in csrc/panel_linear.h."""

    FLOATS = 0
    GROUPED = 1
    INT8 = 2


class _Weight(ctypes.Structure):
    """csrc/panel_linear.h has the same."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("kind", "bits", "gate", "zero")),
        *((name, ctypes.c_int64) for name in ("outputs", "inputs")),
        *((name, ctypes.c_void_p) for name in ("data", "bias")),
    )


class PackedLinear:
    """out = x W^T + bias for x of `dtype`; with a gate, a key of GATES, its activation of the first half * the second.

    data: the weight [N, K] in the order of its kind. bias: [N] of `dtype`. Only where `kernel.has_cpp`.
    """

    def __init__(
        self,
        kind: Kind,
        data: torch.Tensor,
        shape: tuple[int, int],
        dtype: torch.dtype,
        *,
        bits: int = 0,
        zero: int = 0,
        bias: torch.Tensor | None = None,
        gate: str | None = None,
    ) -> None:
        outputs, self.inputs = shape
        assert bias is None or (bias.shape == (outputs,) and bias.dtype == dtype and bias.is_contiguous()), bias
        assert gate is None or outputs % 2 == 0, shape
        self.kind, self.shape, self.dtype = kind, shape, dtype
        self._kept = data, bias
        self._weight = _Weight(
            *(kind, bits, GATES[gate], zero, outputs, self.inputs),
            *(data.data_ptr(), None if bias is None else bias.data_ptr()),
        )
        self.address = ctypes.addressof(self._weight)
        self._width = outputs if gate is None else outputs // 2
        self._multiply, self._norm_multiply = (functions()[name, dtype] for name in ("linear", "norm_linear"))

    def multiply(self, x: torch.Tensor) -> torch.Tensor:
        """x [T, K] of `dtype` -> [T, N], with a gate [T, N / 2]. MemoryError without room to work."""
        x = x.contiguous()
        out = self._new_out(x)
        if not self._multiply(self.address, x.data_ptr(), len(out), out.data_ptr(), torch.get_num_threads()):
            raise self._no_memory(out)
        return out

    def add_norm_multiply(
        self, x: torch.Tensor, residual: torch.Tensor | None, norm_weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(`multiply` of rms_norm(residual + x), residual + x), x and residual [T, K] dense and given up.

        norm_weight: [K] of `dtype` or float32. Without a residual the sum is x.
        """
        out = self._new_out(x)
        wide = norm_weight.dtype is not self.dtype
        assert is_dense(norm_weight, (self.inputs,), torch.float32 if wide else self.dtype), norm_weight.shape
        assert residual is None or is_dense(residual, x.shape, self.dtype), (residual.shape, residual.dtype, x.shape)
        has_memory = self._norm_multiply(
            *(self.address, x.data_ptr(), None if residual is None else residual.data_ptr(), norm_weight.data_ptr()),
            *(wide, eps, len(out), out.data_ptr(), torch.get_num_threads()),
        )
        if not has_memory:
            raise self._no_memory(out)
        return out, x if residual is None else residual

    def _new_out(self, x: torch.Tensor) -> torch.Tensor:
        """Memory for the product of x."""
        rows, inputs = x.shape
        assert inputs == self.inputs, (x.shape, self.shape)
        assert x.dtype is self.dtype, (x.dtype, self.dtype)
        assert x.is_contiguous(), x.stride()
        return x.new_empty((rows, self._width))

    def _no_memory(self, out: torch.Tensor) -> MemoryError:
        return MemoryError(f"no memory to multiply {len(out)} rows of {self.inputs}")


class FloatPanels:
    """A weight [N, K] of floats that is written to its place in the kernel's order, any rows at a time, and read once.

    With a gate each half of the rows has panels of its own.
    """

    def __init__(self, shape: tuple[int, int], dtype: torch.dtype, gate: str | None = None) -> None:
        outputs, inputs = shape
        self.shape, self.dtype, self.gate = shape, dtype, gate
        self._part = outputs if gate is None else outputs // 2
        self._part_rows = div_ceil(self._part, PANEL) * PANEL
        rows = self._part_rows * (1 if gate is None else 2)
        self._data = torch.zeros(rows * div_ceil(inputs, GROUP) * GROUP, dtype=dtype)

    def write(self, first: int, rows: torch.Tensor) -> None:
        """rows [n, K], of floats of 16, 32 or 64 bits, become rows [first, first + n); each row must be dense."""
        for part in range(0, self.shape[0], self._part):
            begin, end = max(first, part), min(first + len(rows), part + self._part)
            if begin < end:
                place = part // self._part * self._part_rows + begin - part
                self._write_part(place, rows[begin - first : end - first])

    def _write_part(self, first: int, rows: torch.Tensor) -> None:
        if rows.dtype not in SOURCES:
            rows = rows.float()
        assert rows.shape[1] == self.shape[1], (rows.shape, self.shape)
        assert rows.stride(1) == 1 or math.prod(rows.shape) <= 1, rows.stride()
        functions()["pack_floats", self.dtype](
            *(rows.data_ptr(), SOURCES[rows.dtype], rows.stride(0), *rows.shape, first, self._data.data_ptr()),
            torch.get_num_threads(),
        )

    def finish(self, bias: torch.Tensor | None = None) -> PackedLinear:
        """The layer, when every row has been written."""
        return PackedLinear(Kind.FLOATS, self._data, self.shape, self.dtype, bias=bias, gate=self.gate)
