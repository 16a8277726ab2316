"""A matrix in small integers of which every few share a scale and an offset: what GGUF's quantised blocks are."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

GROUP = 32  # neighbours in a row that share scale and offset
_PIECE = 1 << 22  # numbers that are floats at a time: malloc has the memory of the last ones, and threads meet seldom


@dataclass(frozen=True, eq=False)
class GroupedTensor:
    """The matrix [N, K], or stack [E, N, K], of scale * code + offset, computed in float32 and rounded once.

    codes: [.., N, K] uint8, below 2 ** bits; bits is 4 or 8. scale, offset: [.., N, K / GROUP] float32.
    """

    codes: torch.Tensor
    scale: torch.Tensor
    offset: torch.Tensor
    bits: int

    @property
    def shape(self) -> torch.Size:
        return self.codes.shape

    def dequantize(self) -> torch.Tensor:
        """[.., N, K] float32."""
        codes = self.codes.view(*self.scale.shape, GROUP).float()
        return torch.addcmul(self.offset[..., None], codes, self.scale[..., None]).view(self.shape)

    def write_to(self, dest: torch.Tensor) -> None:
        """Rounded to the dtype of `dest`, a tensor of this shape; never all of them in float32."""
        step = max(1, _PIECE // math.prod(self.shape[1:]))
        for begin in range(0, len(self.codes), step):
            rows = slice(begin, begin + step)
            part = GroupedTensor(self.codes[rows], self.scale[rows], self.offset[rows], self.bits)
            dest[rows].copy_(part.dequantize())

    def narrow(self, dim: int, start: int, length: int) -> GroupedTensor | torch.Tensor:
        """A part of a matrix's rows or, of whole groups, of its columns; the values themselves if that cuts a group."""
        if dim == 0:
            return self.map_rows(lambda part: part.narrow(0, start, length))
        if start % GROUP or length % GROUP:
            return self.dequantize().narrow(dim, start, length)
        codes = self.codes.narrow(dim, start, length)
        scale, offset = (x.narrow(dim, start // GROUP, length // GROUP) for x in (self.scale, self.offset))
        return GroupedTensor(codes, scale, offset, self.bits)

    def map_rows(self, function: Callable[[torch.Tensor], torch.Tensor]) -> GroupedTensor:
        """`function` picks or reorders rows of any matrix, or matrices of a stack."""
        return GroupedTensor(function(self.codes), function(self.scale), function(self.offset), self.bits)


def dense(tensor: torch.Tensor | GroupedTensor) -> torch.Tensor:
    """The values, if they are not there already."""
    return tensor.dequantize() if isinstance(tensor, GroupedTensor) else tensor
