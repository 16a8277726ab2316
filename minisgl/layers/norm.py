"""Root-mean-square normalisation. Source: arXiv:1910.07467."""

from __future__ import annotations

from dataclasses import replace

import torch

from minisgl.distributed import all_reduce
from minisgl.kernel import add_rms_norm, rms_norm
from minisgl.layers.base import Layer, Placement, WeightSlot


class RMSNorm(Layer):
    """y = x / rms(x) * weight over the last dim, see `minisgl.kernel.torch_ops.rms_norm`.

    offset: of the weight from what a checkpoint holds. With one it is kept in float32: the sum of both has more digits
    than the model's dtype, and rounded it would add a seventh to the error of bfloat16.
    """

    def __init__(self, size: int, eps: float, place: Placement, offset: float = 0.0) -> None:
        super().__init__()
        self.shape, self.eps, self.offset = (size,), eps, offset
        self.weight = (replace(place, dtype=torch.float32) if offset else place).parameter(size)

    def slots(self) -> dict[str, WeightSlot]:
        return {"weight": WeightSlot(self.shape, self.weight, offset=self.offset)}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return rms_norm(x, self.weight, self.eps)

    def add_and_norm(self, x: torch.Tensor, residual: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """(norm(residual + x), residual + x). The sum is written into `residual`; None starts a new one from x.

        x is given up: one of the results may lie in its memory.
        """
        if residual is None:
            return rms_norm(x, self.weight, self.eps), x
        return add_rms_norm(x, residual, self.weight, self.eps), residual


class ShardedRMSNorm(Layer):
    """RMSNorm over `size` elements of which each rank holds an equal share, and that share of the weight."""

    def __init__(self, size: int, eps: float, place: Placement) -> None:
        super().__init__()
        share = place.tp.shard("size of the norm", size)
        self.shape, self.eps, self.tp, self.start = (size,), eps, place.tp, place.tp.rank * share
        self.weight = place.parameter(share)

    def slots(self) -> dict[str, WeightSlot]:
        return {"weight": WeightSlot(self.shape, self.weight, start=self.start)}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[T, this rank's share], rows any stride apart -> the same, divided by the rms of all the ranks hold."""
        if self.tp.size == 1:
            return rms_norm(x, self.weight, self.eps)
        exact = x.float()
        mean = all_reduce(exact.square().sum(-1, keepdim=True), self.tp) / self.shape[0]
        return (self.weight * (exact * torch.rsqrt(mean + self.eps))).to(x.dtype)
