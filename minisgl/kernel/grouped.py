"""Linear layers whose weight stays in the small integers of a quantised checkpoint, in C++ on a CPU.

The integers become floats of x's dtype while they are multiplied: the numbers are those of the dequantised weight, for
6 or 10 bits each from memory instead of 16 or 32. `torch_ops.grouped_linear` is the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import NamedTuple

import torch

from minisgl.kernel.cpu_library import functions
from minisgl.kernel.cpu_linear import PANEL, Kind, PackedLinear
from minisgl.utils.grouped_tensor import GROUP, GroupedTensor


class Layout(NamedTuple):
    """How integers lie in memory. size, pack: C functions. numbers: the dtype of scales and offsets. zero: what the
    functions take besides: the code that stands for 0, or what stands for there being none."""

    kind: Kind
    size: str
    pack: str
    numbers: torch.dtype
    zero: tuple[int, ...] = ()


_EXPANDED = Layout(Kind.GROUPED, "packed_bytes", "pack_groups", torch.float32)


def pack_groups(
    parts: Sequence[GroupedTensor], dtype: torch.dtype, bias: torch.Tensor | None = None, gate: str | None = None
) -> PackedLinear:
    """The layer whose weight has the rows of all parts, copied, for x of `dtype`. Only where `kernel.has_cpp`.

    bias, gate: as of PackedLinear.
    """
    return pack_parts(parts, _EXPANDED, dtype, bias, gate)


def pack_parts(
    parts: Sequence[GroupedTensor], layout: Layout, dtype: torch.dtype, bias: torch.Tensor | None, gate: str | None
) -> PackedLinear:
    """Arguments as of `pack_groups`."""
    bits, inputs, outputs = max(part.bits for part in parts), parts[0].shape[1], sum(part.shape[0] for part in parts)
    assert inputs % GROUP == 0, parts[0].shape
    parts = _aligned(parts, bits, outputs if gate is None else outputs // 2)
    size, pack = (functions()[name, torch.uint8] for name in (layout.size, layout.pack))
    sizes = [size(*part.shape, bits, *layout.zero) for part in parts]
    data = torch.empty(sum(sizes), dtype=torch.uint8)
    for part, place in zip(parts, torch.split(data, sizes), strict=True):
        codes = part.codes.contiguous()
        scale, offset = (x.to(layout.numbers).contiguous() for x in (part.scale, part.offset))
        pack(
            *(codes.data_ptr(), scale.data_ptr(), offset.data_ptr(), *part.shape, bits, *layout.zero),
            *(place.data_ptr(), torch.get_num_threads()),
        )
    zero = layout.zero[0] if layout.zero else 0
    return PackedLinear(layout.kind, data, (outputs, inputs), dtype, bits=bits, zero=zero, bias=bias, gate=gate)


def _aligned(parts: Sequence[GroupedTensor], bits: int, half: int) -> Sequence[GroupedTensor]:
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
