"""The experts of one layer: gated MLPs whose weights are stacked.

Every rank holds a share of each expert's inner size, not some experts whole: all have the same work whatever tokens
choose, and one sum over the ranks ends the layer, as in a dense MLP.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import nn

from minisgl.kernel.moe import join_gate, run_experts, run_sorted
from minisgl.kernel.torch_moe import ClampedGate, ExpertBiases
from minisgl.layers import Layer, Placement, WeightSlot
from minisgl.layers.packed import GroupedParts, PackedWeight, PlainWeight
from minisgl.moe.router import Routing


class ExpertNames(NamedTuple):
    """What a checkpoint calls the three matrices of an expert."""

    gate: str = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"


HF_NAMES = ExpertNames()


class Experts(Layer):
    """E experts of inner size I. The model must name this layer `experts`, as checkpoints do.

    bias: each of the three matrices has one. gate: how an expert joins gate and up; None: silu(gate) * up.
    """

    def __init__(
        self,
        num_experts: int,
        hidden_size: int,
        inner_size: int,
        place: Placement,
        names: ExpertNames = HF_NAMES,
        bias: bool = False,
        gate: ClampedGate | None = None,
    ) -> None:
        super().__init__()
        self.tp, self.names, self.gate = place.tp, names, gate
        self.hidden_size, self.inner_size = hidden_size, inner_size
        self.share = place.tp.shard("the inner size of experts", inner_size)
        self.gate_up: nn.Parameter | None = place.parameter(num_experts, 2 * self.share, hidden_size)
        self.down: nn.Parameter | None = place.parameter(num_experts, hidden_size, self.share)
        self.gate_up_bias = place.parameter(num_experts, 2 * self.share) if bias else None
        self.down_bias = place.parameter(num_experts, hidden_size) if bias else None
        self.packed: list[tuple[PackedWeight, PackedWeight]] = []
        self._groups = [
            (
                GroupedParts(place.quantization, place.deterministic),
                GroupedParts(place.quantization, place.deterministic),
            )
            for _ in range(num_experts)
        ]

    def slots(self) -> dict[str, WeightSlot]:
        share, start = self.share, self.tp.rank * self.share
        wide, tall = (self.inner_size, self.hidden_size), (self.hidden_size, self.inner_size)
        slots, joined = {}, self._gate_of_layer()
        for expert, ((gate_up, down), groups) in enumerate(zip(self._matrices(), self._groups, strict=True)):
            places = {
                self.names.gate: (wide, gate_up[:share], 0, groups[0], gate_up, joined),
                self.names.up: (wide, gate_up[share:], 0, groups[0], gate_up, joined),
                self.names.down: (tall, down, 1, groups[1], down, None),
            }
            for name, (shape, dest, dim, parts, weight, gate) in places.items():
                take = parts.quantizer(dest) or parts.float_packer(weight, dest, gate)
                slot = WeightSlot(shape, dest, dim, start, parts.taker(dest), take=take)
                slots[f"experts.{expert}.{name}.weight"] = slot
        return slots | self._bias_slots()

    def pack(self) -> None:
        """Each matrix by itself, if there is anything to win by any.

        24 matrices [768, 1024] in bfloat16 take 4.8 ms packed and 10.3 unpacked for 16 rows each, 6.1 and 8.2 for one.
        """
        gate = self._gate_of_layer()
        first_biases, second_biases = self._biases() or (None, None)
        matrices, pairs = list(self._matrices()), []
        for expert, ((gate_up, down), (parts, others)) in enumerate(zip(matrices, self._groups, strict=True)):
            pairs.append(
                (
                    parts.pack(gate_up, _of_expert(first_biases, expert), gate),
                    others.pack(down, _of_expert(second_biases, expert)),
                )
            )
        if all(packed is None for pair in pairs for packed in pair):
            return
        self.packed = [
            (
                packed or PlainWeight(gate_up, _of_expert(first_biases, expert), gate),
                other or PlainWeight(down, _of_expert(second_biases, expert)),
            )
            for expert, ((gate_up, down), (packed, other)) in enumerate(zip(matrices, pairs, strict=True))
        ]
        self.gate_up = self.down = None

    def partial(self, x: torch.Tensor, routing: Routing) -> torch.Tensor:
        """x: [T, H] -> [T, H], this rank's term of the sum over the ranks."""
        if self.gate_up is None or self.down is None:
            return run_sorted(x, self._run_packed, *routing)
        return run_experts(x, self.gate_up, self.down, *routing, self._biases(), self.gate)

    def _gate_of_layer(self) -> str | None:
        """What is part of the product of gate and up; None: `join_gate` comes after it."""
        return "silu" if self.gate is None else None

    def _biases(self) -> ExpertBiases | None:
        """Rank 0's terms carry the bias of down."""
        if self.gate_up_bias is None:
            return None
        return ExpertBiases(self.gate_up_bias, self.down_bias if self.tp.rank == 0 else None)

    def _bias_slots(self) -> dict[str, WeightSlot]:
        if self.gate_up_bias is None or self.down_bias is None:
            return {}
        inner, share, start = (self.inner_size,), self.share, self.tp.rank * self.share
        slots = {}
        for expert, (gate_up, down) in enumerate(zip(self.gate_up_bias, self.down_bias, strict=True)):
            slots[f"experts.{expert}.{self.names.gate}.bias"] = WeightSlot(inner, gate_up[:share], start=start)
            slots[f"experts.{expert}.{self.names.up}.bias"] = WeightSlot(inner, gate_up[share:], start=start)
            slots[f"experts.{expert}.{self.names.down}.bias"] = WeightSlot((self.hidden_size,), down)
        return slots

    def _matrices(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """gate_up and down of every expert."""
        assert self.gate_up is not None, "packed already"
        assert self.down is not None, "packed already"
        return zip(self.gate_up, self.down, strict=True)

    def _run_packed(self, expert: int, rows: torch.Tensor) -> torch.Tensor:
        gate_up, down = self.packed[expert]
        joined = gate_up.multiply(rows)
        return down.multiply(joined if self.gate is None else join_gate(joined, self.gate))


def _of_expert(biases: torch.Tensor | None, expert: int) -> torch.Tensor | None:
    return None if biases is None else biases[expert]
