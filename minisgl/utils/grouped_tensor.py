"""A matrix in small integers of which every few share a scale and an offset: what GGUF's quantised blocks are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

GROUP = 32  # neighbours in a row that share scale and offset


@dataclass(frozen=True, eq=False)
class GroupedTensor:
    """The matrix [N, K] of scale * code + offset, computed in float32 and rounded once.

    codes: [N, K] uint8, below 2 ** bits; bits is 4 or 8. scale, offset: [N, K / GROUP] float32.
    """

    codes: torch.Tensor
    scale: torch.Tensor
    offset: torch.Tensor
    bits: int

    @property
    def shape(self) -> torch.Size:
        return self.codes.shape

    def dequantize(self) -> torch.Tensor:
        """[N, K] float32."""
        rows, columns = self.shape
        codes = self.codes.view(rows, columns // GROUP, GROUP).float()
        return torch.addcmul(self.offset[..., None], codes, self.scale[..., None]).view(rows, columns)

    def narrow(self, dim: int, start: int, length: int) -> GroupedTensor | torch.Tensor:
        """A part of the rows or, of whole groups, of the columns; the values themselves if that cuts a group."""
        if dim == 0:
            return self.map_rows(lambda part: part.narrow(0, start, length))
        if start % GROUP or length % GROUP:
            return self.dequantize().narrow(dim, start, length)
        codes = self.codes.narrow(dim, start, length)
        scale, offset = (x.narrow(dim, start // GROUP, length // GROUP) for x in (self.scale, self.offset))
        return GroupedTensor(codes, scale, offset, self.bits)

    def map_rows(self, function: Callable[[torch.Tensor], torch.Tensor]) -> GroupedTensor:
        """`function` picks or reorders rows of any matrix."""
        return GroupedTensor(function(self.codes), function(self.scale), function(self.offset), self.bits)

    @staticmethod
    def stack(parts: Sequence[GroupedTensor]) -> GroupedTensor:
        """All rows of all parts; as wide as the widest codes."""
        codes, scale, offset = (
            torch.cat([getattr(part, name) for part in parts]) for name in ("codes", "scale", "offset")
        )
        return GroupedTensor(codes, scale, offset, max(part.bits for part in parts))


def dense(tensor: torch.Tensor | GroupedTensor) -> torch.Tensor:
    """The values, if they are not there already."""
    return tensor.dequantize() if isinstance(tensor, GroupedTensor) else tensor
