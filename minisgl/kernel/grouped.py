"""Linear layers whose weight stays in the small integers of a quantised checkpoint, in C++ on a CPU.

The integers become floats of x's dtype while they are multiplied: the numbers are those of the dequantised weight, for
6 or 10 bits each from memory instead of 16 or 32. `torch_ops.grouped_linear` is the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate

import torch

from minisgl.kernel.cpu_library import functions
from minisgl.kernel.cpu_linear import PANEL, Kind, PackedLinear
from minisgl.utils.grouped_tensor import GROUP, GroupedTensor


def pack_groups(
    parts: Sequence[GroupedTensor], dtype: torch.dtype, bias: torch.Tensor | None = None, gate: str | None = None
) -> PackedLinear:
    """The layer whose weight has the rows of all parts, copied, for x of `dtype`. Only where `kernel.has_cpp`.

    bias, gate: as of PackedLinear.
    """
    bits, inputs, outputs = max(part.bits for part in parts), parts[0].shape[1], sum(part.shape[0] for part in parts)
    assert inputs % GROUP == 0, parts[0].shape
    parts = aligned(parts, bits, outputs if gate is None else outputs // 2)
    size = functions()["packed_bytes", torch.uint8]
    sizes = [size(*part.shape, bits) for part in parts]
    data = torch.empty(sum(sizes), dtype=torch.uint8)
    for part, place in zip(parts, torch.split(data, sizes), strict=True):
        _pack(part, bits, place)
    return PackedLinear(Kind.GROUPED, data, (outputs, inputs), dtype, bits=bits, bias=bias, gate=gate)


def aligned(parts: Sequence[GroupedTensor], bits: int, half: int) -> Sequence[GroupedTensor]:
    """The same rows in parts that begin with a panel; so does what `half` rows are before."""
    begins = list(accumulate((part.shape[0] for part in parts), initial=0))
    if half in begins and all(begin % half % PANEL == 0 for begin in begins[:-1]):
        return parts
    whole = _joined(parts, bits)
    return [
        whole.map_rows(partial(torch.narrow, dim=0, start=begin, length=half)) for begin in range(0, begins[-1], half)
    ]


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
