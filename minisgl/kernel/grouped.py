"""Linear layers whose weight stays in the small integers of a quantised checkpoint, in C++ on a CPU.

The integers become floats of x's dtype while they are multiplied: the numbers are those of the dequantised weight, for
6 or 10 bits each from memory instead of 16 or 32. `torch_ops.grouped_linear` is the reference.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from minisgl.kernel.cpu_ops import functions
from minisgl.utils.grouped_tensor import GROUP, GroupedTensor


@dataclass(frozen=True, eq=False)
class PackedGroups:
    """A weight [N, K] in the order of the kernel: panels of outputs, in which group follows group."""

    data: torch.Tensor
    shape: torch.Size
    bits: int


def pack_groups(weight: GroupedTensor) -> PackedGroups:
    """A copy of `weight` for `grouped_linear`. Only where `kernel.has_cpp`."""
    outputs, inputs = weight.shape
    assert inputs % GROUP == 0, weight.shape
    size = functions()["packed_bytes", torch.uint8](outputs, inputs, weight.bits)
    data = torch.zeros(size, dtype=torch.uint8)
    codes, scale, offset = (x.contiguous() for x in (weight.codes, weight.scale, weight.offset))
    functions()["pack_groups", torch.uint8](
        *(codes.data_ptr(), scale.data_ptr(), offset.data_ptr(), outputs, inputs, weight.bits, data.data_ptr())
    )
    return PackedGroups(data, weight.shape, weight.bits)


def grouped_linear(x: torch.Tensor, weight: PackedGroups, bias: torch.Tensor | None) -> torch.Tensor:
    """x [T, K], dense, in float32 or bfloat16, times the weight [N, K], plus bias [N]: [T, N].

    Sums are float32, and those of a row do not depend on the rows beside it.
    """
    (outputs, inputs), rows = weight.shape, x.shape[0]
    assert x.is_contiguous(), x.stride()
    assert x.shape[1] == inputs, (x.shape, weight.shape)
    assert bias is None or (bias.shape == (outputs,) and bias.dtype == x.dtype), (bias, x.dtype)
    out = torch.empty(rows, outputs, dtype=x.dtype)
    functions()["grouped_linear", x.dtype](
        *(x.data_ptr(), rows, inputs, outputs, weight.data.data_ptr(), weight.bits),
        *(None if bias is None else bias.data_ptr(), out.data_ptr(), torch.get_num_threads()),
    )
    return out
