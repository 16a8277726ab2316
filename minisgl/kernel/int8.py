"""Linear layers of small integers times activations that are quantised to int8 on the way in, on a CPU.

Every GROUP neighbours of a row of x become integers from -127 to 127 with a scale of their own, so that a layer is dot
products of bytes: twice to four times as fast as the same weight times floats, for an error of about half a percent of
the result. `torch_ops.int8_linear` is the reference.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from minisgl.kernel.cpu_linear import Kind, PackedLinear
from minisgl.kernel.grouped import Layout, pack_parts
from minisgl.utils.grouped_tensor import GroupedTensor

# In place of the code that is 0, where there are offsets instead: which dtype they and the scales have in memory.
HALF_OFFSETS, SINGLE_OFFSETS = -1, -2


def pack_int8(
    parts: Sequence[GroupedTensor], dtype: torch.dtype, bias: torch.Tensor | None = None, gate: str | None = None
) -> PackedLinear:
    """The layer whose weight has the rows of all parts, copied, for x of `dtype`. Only where `kernel.has_cpp`.

    Scales and offsets are float16 where that is exact. bias, gate: as of PackedLinear.
    """
    zero = common_zero(parts)
    numbers = torch.float32 if zero == SINGLE_OFFSETS else torch.float16
    return pack_parts(parts, Layout(Kind.INT8, "strip_bytes", "pack_strips", numbers, (zero,)), dtype, bias, gate)


def common_zero(parts: Sequence[GroupedTensor]) -> int:
    """The code that stands for 0 in every group, so that offsets need not be kept; else HALF_ or SINGLE_OFFSETS."""
    if not all(_is_half(part.scale) for part in parts):
        return SINGLE_OFFSETS
    zeros = {_zero_of(part) for part in parts}
    zero = zeros.pop()
    if zero is not None and not zeros:
        return zero
    return HALF_OFFSETS if all(_is_half(part.offset) for part in parts) else SINGLE_OFFSETS


def _zero_of(part: GroupedTensor) -> int | None:
    place = part.scale.abs().argmax()
    scale, offset = part.scale.flatten()[place], part.offset.flatten()[place]
    zero = 0 if scale == 0 else round(float(-offset / scale))
    is_zero = 0 <= zero < 2**part.bits and torch.equal(part.offset, part.scale * -zero)
    return zero if is_zero else None


def _is_half(x: torch.Tensor) -> bool:
    """Whether all are finite numbers of float16."""
    half = x.half()
    return torch.equal(half.float(), x) and bool(half.isfinite().all())
