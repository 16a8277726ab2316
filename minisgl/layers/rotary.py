"""Rotary position embedding, Hugging Face's half-and-half layout: element i turns together with element i + D/2.

Source: RoFormer, arXiv:2104.09864. The turns of a batch are computed once and serve all its layers.
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


class RotaryEmbedding(nn.Module):
    """Positions to rotations. inv_freq: [D/2] float32, radians a position."""

    def __init__(self, inv_freq: torch.Tensor, place: Placement) -> None:
        super().__init__()
        self.inv_freq = inv_freq.to(place.device)
        self.dtype = place.dtype

    def divide_frequencies(self, name: str, factors: torch.Tensor) -> None:
        """Divide every frequency by its factor, [D/2]: what a GGUF file's rope_freqs.weight means in llama.cpp."""
        if factors.shape != self.inv_freq.shape:
            expected, got = list(self.inv_freq.shape), list(factors.shape)
            raise ValueError(f"tensor {name!r}: expected shape {expected}, got {got}")
        self.inv_freq = self.inv_freq / factors.to(self.inv_freq)

    def forward(self, positions: torch.Tensor) -> Rotation:
        """positions: [T] int32 or int64. No table and so no largest position; the cost is a few small operations."""
        return Rotation(*rotary_turns(self.inv_freq, positions, self.dtype))
