"""Rotary position embedding: element i of a head turns together with element i + D/2. Batches compute turns once.

Hugging Face's layout is the same, unless only the first R of D elements turn: there, i turns with i + R/2. To the same
kernels the rest turns by an angle of 0, once `turning_order` has brought the rows of q and k into place: attention
does not care in which order elements stand, if it is the same in q and k.
Source: RoFormer, arXiv:2104.09864.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn

from minisgl.kernel import rotary_turns
from minisgl.layers.base import Placement


class Rotation(NamedTuple):
    """cos, sin: [T, 1, D] in the model's dtype; the first half of sin is negated, as `rotate_and_store` wants it."""

    cos: torch.Tensor
    sin: torch.Tensor

    def standstill(self) -> Rotation:
        """The rotation that turns nothing, for as many tokens."""
        return Rotation(torch.ones_like(self.cos), torch.zeros_like(self.sin))


class RotaryEmbedding(nn.Module):
    """Positions to rotations of heads [D].

    inv_freq: [R/2] float32, radians a position, where R elements turn: D, or fewer. factor: what turns is multiplied
    by it (yarn's and longrope's attention factor).
    """

    def __init__(
        self, inv_freq: torch.Tensor, place: Placement, head_dim: int | None = None, factor: float = 1
    ) -> None:
        super().__init__()
        self.num_turning = len(inv_freq)
        at_rest = (head_dim or 2 * len(inv_freq)) // 2 - len(inv_freq)
        self.inv_freq = nn.functional.pad(inv_freq, (0, at_rest)).to(place.device)
        self.dtype = place.dtype
        factors = nn.functional.pad(torch.full_like(inv_freq, factor), (0, at_rest), value=1.0)
        self.factors = factors.repeat(2).to(place.device) if factor != 1 else None

    def divide_frequencies(self, name: str, factors: torch.Tensor) -> None:
        """Divide every frequency by its factor, [R/2]: what a GGUF file's rope_freqs.weight means in llama.cpp."""
        if factors.shape != (self.num_turning,):
            expected, got = [self.num_turning], list(factors.shape)
            raise ValueError(f"tensor {name!r}: expected shape {expected}, got {got}")
        if not bool(((factors > 0) & factors.isfinite()).all()):
            raise ValueError(f"tensor {name!r} holds what is no number above 0")
        divided = self.inv_freq[: self.num_turning] / factors.to(self.inv_freq)
        self.inv_freq = torch.cat((divided, self.inv_freq[self.num_turning :]))

    def forward(self, positions: torch.Tensor) -> Rotation:
        """positions: [T] int32 or int64. No table and so no largest position; the cost is a few small operations."""
        if self.factors is None:
            return Rotation(*rotary_turns(self.inv_freq, positions, self.dtype))
        turns = rotary_turns(self.inv_freq, positions, torch.float32)
        return Rotation(*((turn * self.factors).to(self.dtype) for turn in turns))


def turning_order(num_heads: int, head_dim: int, rotary_dim: int) -> torch.Tensor:
    """The checkpoint's rows [H * D] int64 in the order of our kernels, for heads of which the first R elements turn."""
    half, rest = rotary_dim // 2, head_dim // 2
    row = torch.arange(head_dim)
    turning, still = row[:rotary_dim].view(2, half), row[rotary_dim:].view(2, rest - half)
    head = torch.cat((turning, still), dim=1).flatten()
    return (torch.arange(num_heads)[:, None] * head_dim + head).flatten()
