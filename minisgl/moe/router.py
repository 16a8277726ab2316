"""Which experts a token goes to, and how much each counts."""

from __future__ import annotations

from typing import NamedTuple

import torch

from minisgl.kernel.moe import route
from minisgl.layers import Placement, WeightSlot
from minisgl.layers.linear import Linear


class Routing(NamedTuple):
    """weights: [T, K] float32. experts: [T, K] int32, the one with the largest weight first."""

    weights: torch.Tensor
    experts: torch.Tensor


class Router(Linear):
    """A score of every expert for every token, and a softmax. Whole on every rank, so that all choose the same.

    normalised: the weights of a token's experts sum to 1.
    """

    def __init__(self, hidden_size: int, num_experts: int, num_chosen: int, normalised: bool, place: Placement) -> None:
        super().__init__(place.parameter(num_experts, hidden_size), None, place.tp)
        self.shape, self.num_chosen, self.normalised = (num_experts, hidden_size), num_chosen, normalised

    def slots(self) -> dict[str, WeightSlot]:
        assert self.weight is not None
        return {"weight": self.slot("weight", self.shape, self.weight)}

    def forward(self, x: torch.Tensor) -> Routing:
        """x: [T, H]."""
        return Routing(*route(self.multiply(x, None), self.num_chosen, self.normalised))
