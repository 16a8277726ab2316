"""Linear layers of which each rank computes a part, split by output (column) or by input (row).

Weights are [out, in], as in checkpoints. Source of the split: Megatron-LM, arXiv:1909.08053 sec. 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from minisgl.distributed import TPInfo, all_reduce
from minisgl.layers.base import Layer, Placement, WeightSlot
from minisgl.layers.packed import PackedWeight, pack_weight
from minisgl.utils.grouped_tensor import GroupedTensor


class Linear(Layer):
    """This rank's part of y = x W^T + b. Packing trades `weight` for `packed`: the same numbers in a kernel's order.

    groups: the rows of the weight, a piece for each checkpoint tensor in order, as far as the checkpoint has them so.
    """

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter | None, tp: TPInfo) -> None:
        super().__init__()
        self.weight: nn.Parameter | None = weight
        self.bias = bias
        self.tp = tp
        self.packed: PackedWeight | None = None
        self.groups: dict[str, GroupedTensor] = {}

    def multiply(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """[T, in of this rank] -> [T, out of this rank]."""
        if self.packed is not None:
            return self.packed.multiply(x, bias)
        assert self.weight is not None
        return F.linear(x, self.weight, bias)

    def pack(self) -> None:
        assert self.weight is not None, "packed twice"
        self.packed = pack_weight(self.weight, self._all_groups())
        self.groups.clear()
        if self.packed is not None:
            self.weight = None

    def keep(self, part: str) -> Callable[[GroupedTensor], None]:
        """What remembers that part of the weight until it is packed."""
        return partial(self.groups.__setitem__, part)

    def _part_names(self) -> Iterable[str]:
        """The checkpoint tensors that make up the weight, in order."""
        return ("weight",)

    def _all_groups(self) -> GroupedTensor | None:
        parts = [self.groups.get(name) for name in self._part_names()]
        known = [part for part in parts if part is not None]
        return GroupedTensor.stack(known) if len(known) == len(parts) else None


class ColumnParallelLinear(Linear):
    """Several checkpoint tensors side by side in one matmul; each rank holds an equal share of the rows of every one.

    parts: output features by the tensor's name, before the split, e.g. {"gate_proj": I, "up_proj": I}.
    """

    def __init__(self, in_features: int, parts: Mapping[str, int], bias: bool, place: Placement) -> None:
        shares = {name: place.tp.shard(name, size) for name, size in parts.items()}
        rows = sum(shares.values())
        super().__init__(place.parameter(rows, in_features), place.parameter(rows) if bias else None, place.tp)
        self.in_features, self.parts, self.shares = in_features, dict(parts), shares

    def slots(self) -> dict[str, WeightSlot]:
        assert self.weight is not None
        slots, row = {}, 0
        for name, share in self.shares.items():
            total, rows, start = self.parts[name], slice(row, row + share), self.tp.rank * share
            shape = (total, self.in_features)
            slots[f"{name}.weight"] = WeightSlot(shape, self.weight[rows], start=start, keep=self.keep(name))
            if self.bias is not None:
                slots[f"{name}.bias"] = WeightSlot((total,), self.bias[rows], start=start)
            row += share
        return slots

    def _part_names(self) -> Iterable[str]:
        return self.parts

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[T, in] -> [T, this rank's share of every part, in order]."""
        return self.multiply(x, self.bias)


class RowParallelLinear(Linear):
    """One checkpoint tensor of which each rank holds an equal share of the columns; the partial results are summed."""

    def __init__(self, in_features: int, out_features: int, bias: bool, place: Placement) -> None:
        share = place.tp.shard("in_features", in_features)
        bias_vector = place.parameter(out_features) if bias else None
        super().__init__(place.parameter(out_features, share), bias_vector, place.tp)
        self.shape, self.start = (out_features, in_features), place.tp.rank * share

    def slots(self) -> dict[str, WeightSlot]:
        assert self.weight is not None
        slots = {"weight": WeightSlot(self.shape, self.weight, dim=1, start=self.start, keep=self.keep("weight"))}
        if self.bias is not None:
            slots["bias"] = WeightSlot(self.shape[:1], self.bias)
        return slots

    def partial(self, x: torch.Tensor) -> torch.Tensor:
        """This rank's term of the sum; rank 0's carries the bias."""
        return self.multiply(x, self.bias if self.tp.rank == 0 else None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[T, in / tp_size] -> [T, out], the same on every rank."""
        return all_reduce(self.partial(x), self.tp)
