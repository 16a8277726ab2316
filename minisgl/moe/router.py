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


class WholeLinear(Linear):
    """y = x W^T + b, the whole of it on every rank: for a few features, which are not worth a collective."""

    def __init__(self, in_features: int, out_features: int, place: Placement, bias: bool = False) -> None:
        bias_vector = place.parameter(out_features) if bias else None
        super().__init__(place.parameter(out_features, in_features), bias_vector, place.tp)
        self.shape = (out_features, in_features)

    def slots(self) -> dict[str, WeightSlot]:
        assert self.weight is not None
        slots = {"weight": self.slot(self.shape, self.weight)}
        if self.bias is not None:
            slots["bias"] = WeightSlot(self.shape[:1], self.bias)
        return slots

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[T, in] -> [T, out]."""
        return self.multiply(x)


class Router(WholeLinear):
    """A score of every expert for every token, and a softmax; all ranks make the same choice.

    normalised: the weights of a token's experts sum to 1.
    """

    def __init__(
        self,
        hidden_size: int,
        num_experts: int,
        num_chosen: int,
        normalised: bool,
        place: Placement,
        bias: bool = False,
    ) -> None:
        super().__init__(hidden_size, num_experts, place, bias)
        self.num_chosen, self.normalised = num_chosen, normalised

    def choose(self, x: torch.Tensor) -> Routing:
        """x: [T, H]."""
        return Routing(*route(self.forward(x), self.num_chosen, self.normalised))
