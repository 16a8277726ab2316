"""The experts of one layer: gated MLPs whose weights are stacked.

Every rank holds a share of each expert's inner size, not some experts whole: all have the same work whatever tokens
choose, and one sum over the ranks ends the layer, as in a dense MLP.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import nn

from minisgl.kernel import silu_and_mul
from minisgl.kernel.moe import run_experts, run_sorted
from minisgl.layers import Layer, Placement, WeightSlot
from minisgl.layers.packed import PackedWeight, pack_weight
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
        self.gate_up: nn.Parameter | None = place.parameter(num_experts, 2 * self.share, hidden_size)
        self.down: nn.Parameter | None = place.parameter(num_experts, hidden_size, self.share)
        self.packed: list[tuple[PackedWeight, PackedWeight]] = []

    def slots(self) -> dict[str, WeightSlot]:
        share, start = self.share, self.tp.rank * self.share
        wide, tall = (self.inner_size, self.hidden_size), (self.hidden_size, self.inner_size)
        slots = {}
        for expert, (gate_up, down) in enumerate(self._matrices()):
            slots[f"experts.{expert}.{self.names.gate}.weight"] = WeightSlot(wide, gate_up[:share], start=start)
            slots[f"experts.{expert}.{self.names.up}.weight"] = WeightSlot(wide, gate_up[share:], start=start)
            slots[f"experts.{expert}.{self.names.down}.weight"] = WeightSlot(tall, down, dim=1, start=start)
        return slots

    def pack(self) -> None:
        """Each expert by itself: gate and up, and down, or all stay as they are.

        24 matrices [768, 1024] in bfloat16 take 4.8 ms packed and 10.3 unpacked for 16 rows each, 6.1 and 8.2 for one.
        """
        pairs = [(pack_weight(gate_up), pack_weight(down)) for gate_up, down in self._matrices()]
        self.packed = [(gate_up, down) for gate_up, down in pairs if gate_up is not None and down is not None]
        if self.packed:
            self.gate_up = self.down = None

    def partial(self, x: torch.Tensor, routing: Routing) -> torch.Tensor:
        """x: [T, H] -> [T, H], this rank's term of the sum over the ranks."""
        if self.gate_up is None or self.down is None:
            return run_sorted(x, self._run_packed, *routing)
        return run_experts(x, self.gate_up, self.down, *routing)

    def _matrices(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """gate_up and down of every expert."""
        assert self.gate_up is not None, "packed already"
        assert self.down is not None, "packed already"
        return zip(self.gate_up, self.down, strict=True)

    def _run_packed(self, expert: int, rows: torch.Tensor) -> torch.Tensor:
        gate_up, down = self.packed[expert]
        return down.multiply(silu_and_mul(gate_up.multiply(rows, None)), None)
