"""Root-mean-square normalisation. Source: arXiv:1910.07467."""

from __future__ import annotations

import torch

from minisgl.kernel import add_rms_norm, rms_norm
from minisgl.layers.base import Layer, Placement, WeightSlot


class RMSNorm(Layer):
    """y = x / rms(x) * weight over the last dim, see `minisgl.kernel.torch_ops.rms_norm`."""

    def __init__(self, size: int, eps: float, place: Placement) -> None:
        super().__init__()
        self.shape, self.eps = (size,), eps
        self.weight = place.parameter(size)

    def slots(self) -> dict[str, WeightSlot]:
        return {"weight": WeightSlot(self.shape, self.weight)}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return rms_norm(x, self.weight, self.eps)

    def add_and_norm(self, x: torch.Tensor, residual: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """(norm(residual + x), residual + x). The sum is written into `residual`; None starts a new one from x.

        x is given up: one of the results may lie in its memory.
        """
        if residual is None:
            return rms_norm(x, self.weight, self.eps), x
        return add_rms_norm(x, residual, self.weight, self.eps), residual
