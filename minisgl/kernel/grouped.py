"""Linear layers whose weight stays in the small integers of a quantised checkpoint, in C++ on a CPU.

The integers become floats of x's dtype while they are multiplied: the numbers are those of the dequantised weight, for
6 or 10 bits each from memory instead of 16 or 32. `torch_ops.grouped_linear` is the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from minisgl.kernel.cpu_ops import functions
from minisgl.utils.grouped_tensor import GROUP, GroupedTensor

PANEL = 32  # outputs that lie side by side in the packed weight, as in csrc/grouped_weight.h


@dataclass(frozen=True, eq=False)
class PackedGroups:
    """A weight [N, K] in the order of the kernel: panels of outputs, in which group follows group."""

    data: torch.Tensor
    shape: torch.Size
    bits: int


def pack_groups(parts: Sequence[GroupedTensor]) -> PackedGroups:
    """A copy, for `grouped_linear`, of the rows of all parts. Only where `kernel.has_cpp`."""
    bits, inputs = max(part.bits for part in parts), parts[0].shape[1]
    assert inputs % GROUP == 0, parts[0].shape
    rows = [part.shape[0] for part in parts]
    if any(n % PANEL for n in rows[:-1]):
        return pack_groups([_joined(parts, bits)])
    size = functions()["packed_bytes", torch.uint8]
    data, begin = torch.empty(size(sum(rows), inputs, bits), dtype=torch.uint8), 0
    for part, n in zip(parts, rows, strict=True):
        _pack(part, bits, data[begin:])
        begin += size(n, inputs, bits)
    return PackedGroups(data, torch.Size((sum(rows), inputs)), bits)


def _joined(parts: Sequence[GroupedTensor], bits: int) -> GroupedTensor:
    codes = torch.cat([part.codes for part in parts])
    scale, offset = torch.cat([part.scale for part in parts]), torch.cat([part.offset for part in parts])
    return GroupedTensor(codes, scale, offset, bits)


def _pack(part: GroupedTensor, bits: int, place: torch.Tensor) -> None:
    codes, scale, offset = (x.contiguous() for x in (part.codes, part.scale, part.offset))
    functions()["pack_groups", torch.uint8](
        *(codes.data_ptr(), scale.data_ptr(), offset.data_ptr(), *part.shape, bits, place.data_ptr()),
        torch.get_num_threads(),
    )


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
