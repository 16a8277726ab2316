"""The experts of one layer: gated MLPs whose weights are stacked.

Every rank holds a share of each expert's inner size, not some experts whole: all have the same work whatever tokens
choose, and one sum over the ranks ends the layer, as in a dense MLP.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from minisgl.kernel.moe import run_experts
from minisgl.layers import Layer, Placement, WeightSlot
from minisgl.moe.router import Routing


class ExpertNames(NamedTuple):
    """What a checkpoint calls the three matrices of an expert."""

    gate: str = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"


HF_NAMES = ExpertNames()


class Experts(Layer):
    """E experts of inner size I. The model must name this layer `experts`, as checkpoints do."""

    def __init__(
        self,
        num_experts: int,
        hidden_size: int,
        inner_size: int,
        place: Placement,
        names: ExpertNames = HF_NAMES,
    ) -> None:
        super().__init__()
        self.tp, self.names = place.tp, names
        self.hidden_size, self.inner_size = hidden_size, inner_size
        self.share = place.tp.shard("the inner size of experts", inner_size)
        self.gate_up = place.parameter(num_experts, 2 * self.share, hidden_size)
        self.down = place.parameter(num_experts, hidden_size, self.share)

    def slots(self) -> dict[str, WeightSlot]:
        share, start = self.share, self.tp.rank * self.share
        wide, tall = (self.inner_size, self.hidden_size), (self.hidden_size, self.inner_size)
        slots = {}
        for expert, (gate_up, down) in enumerate(zip(self.gate_up, self.down, strict=True)):
            slots[f"experts.{expert}.{self.names.gate}.weight"] = WeightSlot(wide, gate_up[:share], start=start)
            slots[f"experts.{expert}.{self.names.up}.weight"] = WeightSlot(wide, gate_up[share:], start=start)
            slots[f"experts.{expert}.{self.names.down}.weight"] = WeightSlot(tall, down, dim=1, start=start)
        return slots

    def partial(self, x: torch.Tensor, routing: Routing) -> torch.Tensor:
        """x: [T, H] -> [T, H], this rank's term of the sum over the ranks."""
        return run_experts(x, self.gate_up, self.down, *routing)
