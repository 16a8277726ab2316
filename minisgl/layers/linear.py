"""Linear layers of which each rank computes a part, split by output (column) or by input (row).

Weights are [out, in], as in checkpoints. Source of the split: Megatron-LM, arXiv:1909.08053 sec. 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch import nn

from minisgl.distributed import TPInfo, all_reduce
from minisgl.kernel.cpu_linear import PackedLinear
from minisgl.kernel.linear import add_norm_linear, linear
from minisgl.layers.base import Layer, Placement, WeightSlot
from minisgl.layers.norm import RMSNorm
from minisgl.layers.packed import GroupedParts, PackedWeight, is_repacked, same_place
from minisgl.utils.own_pages import Scratch


class Linear(Layer):
    """This rank's part of y = x W^T + b. Packing trades `weight` for `packed`: the same numbers in a kernel's order.

    A tensor that the checkpoint has grouped waits as it is: if all that make up the weight are, it is never written.
    scratch: where a weight may wait to be packed. None: where it is, since others use it or not all of it is loaded.
    gate: the result is the activation of this name, a key of `minisgl.kernel.linear.GATES`, of the first half * the
    second. biased: whether this rank adds the bias. quantization, deterministic: as of Placement.
    """

    def __init__(
        self,
        weight: nn.Parameter,
        bias: nn.Parameter | None,
        tp: TPInfo,
        scratch: Scratch | None = None,
        gate: str | None = None,
        biased: bool = True,
        quantization: str = "none",
        deterministic: bool = True,
    ) -> None:
        super().__init__()
        self.weight: nn.Parameter | None = weight
        self.bias = bias
        self.tp, self.gate, self._biased = tp, gate, biased
        self.packed: PackedWeight | None = None
        self._groups = GroupedParts(quantization, deterministic)
        self._scratch, self._lent = scratch, False

    def multiply(self, x: torch.Tensor) -> torch.Tensor:
        """[T, in of this rank] -> [T, out of this rank], or what the gate makes of it."""
        if self.packed is not None:
            return self.packed.multiply(x)
        assert self.weight is not None
        return linear(x, self.weight, self._own_bias(), self.gate)

    def _own_bias(self) -> torch.Tensor | None:
        return self.bias if self._biased else None

    def pack(self) -> None:
        assert self.weight is not None, "packed twice"
        self.packed = self._groups.pack(self.weight, self._own_bias(), self.gate)
        if self.packed is None:
            return
        if self._scratch is not None and self._lent:
            self._scratch.give_back(self.weight.data)
        self.weight = None

    def slot(
        self,
        shape: tuple[int, ...],
        dest: torch.Tensor,
        *,
        dim: int = 0,
        start: int = 0,
        rows: torch.Tensor | None = None,
    ) -> WeightSlot:
        """For a tensor that makes up the rows `dest` of the weight; arguments as of WeightSlot."""
        assert self.weight is not None
        take = self._groups.quantizer(dest) or self._groups.float_packer(self.weight, dest, self.gate)
        if take is None and self._scratch is not None and is_repacked(dest):
            take = partial(self._take, dest)
        return WeightSlot(shape, dest, dim, start, self._groups.taker(dest), rows, take=take)

    def _take(self, dest: torch.Tensor, part: torch.Tensor) -> None:
        """Packing will copy the weight: it need not be copied if `part` is all of it, or else not to new memory."""
        assert self.weight is not None, "packed already"
        assert self._scratch is not None
        if self._is_whole(dest) and part.dtype == dest.dtype and part.is_contiguous():
            self.weight = nn.Parameter(part, requires_grad=False)
            return
        if not self._lent:
            self.weight, self._lent = nn.Parameter(self._scratch.take(self.weight), requires_grad=False), True
        same_place(self.weight, dest).copy_(part)

    def _is_whole(self, dest: torch.Tensor) -> bool:
        """Whether the layer waits for nothing but the tensor that goes to `dest`, and is packed as soon as it comes."""
        return self.weight is not None and dest.shape == self.weight.shape and self.bias is None


class ColumnParallelLinear(Linear):
    """Several checkpoint tensors side by side in one matmul; each rank holds an equal share of the rows of every one.

    parts: output features by the tensor's name, before the split, e.g. {"gate_proj": I, "up_proj": I}, which are what
    a gate joins.
    """

    def __init__(
        self, in_features: int, parts: Mapping[str, int], bias: bool, place: Placement, gate: str | None = None
    ) -> None:
        shares = {name: place.tp.shard(name, size) for name, size in parts.items()}
        rows = sum(shares.values())
        bias_vector = place.parameter(rows) if bias else None
        super().__init__(
            *(place.parameter(rows, in_features), bias_vector, place.tp, place.scratch, gate),
            quantization=place.quantization,
            deterministic=place.deterministic,
        )
        self.in_features, self.parts, self.shares = in_features, dict(parts), shares

    def slots(self) -> dict[str, WeightSlot]:
        assert self.weight is not None
        slots, row = {}, 0
        for name, share in self.shares.items():
            total, rows, start = self.parts[name], slice(row, row + share), self.tp.rank * share
            slots[f"{name}.weight"] = self.slot((total, self.in_features), self.weight[rows], start=start)
            if self.bias is not None:
                slots[f"{name}.bias"] = WeightSlot((total,), self.bias[rows], start=start)
            row += share
        return slots

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[T, in] -> [T, this rank's share of every part, in order]; with a gate: [T, its share of one part]."""
        return self.multiply(x)

    def after_norm(
        self, x: torch.Tensor, residual: torch.Tensor | None, norm: RMSNorm
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(forward(norm(residual + x)), residual + x), arguments as of `RMSNorm.add_and_norm`; maybe in one kernel."""
        if isinstance(self.packed, PackedLinear):
            return self.packed.add_norm_multiply(x, residual, norm.weight, norm.eps)
        if self.weight is not None:
            return add_norm_linear(x, residual, norm.weight, norm.eps, self.weight, self.bias, self.gate)
        x, residual = norm.add_and_norm(x, residual)
        return self.forward(x), residual


class FusedColumnParallelLinear(ColumnParallelLinear):
    """The same, but the checkpoint has one tensor, of the layer's own name, with the rows of all parts in turn.

    orders: by part, another order [rows of the whole part] int64 than the checkpoint's.
    """

    def __init__(
        self,
        in_features: int,
        parts: Mapping[str, int],
        place: Placement,
        gate: str | None = None,
        orders: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        super().__init__(in_features, parts, False, place, gate)
        self.orders = orders or {}

    def slots(self) -> dict[str, WeightSlot]:
        assert self.weight is not None
        shape = (sum(self.parts.values()), self.in_features)
        return {"weight": self.slot(shape, self.weight, rows=self._rows())}

    def _rows(self) -> torch.Tensor | None:
        """Where this rank's share of every part lies in the checkpoint's tensor; None: it is all of it, in order."""
        if self.tp.size == 1 and not self.orders:
            return None
        rows, first = [], 0
        for name, size in self.parts.items():
            order = self.orders.get(name, torch.arange(size))
            rows.append(first + order.chunk(self.tp.size)[self.tp.rank])
            first += size
        return torch.cat(rows)


class RowParallelLinear(Linear):
    """One checkpoint tensor of which each rank holds an equal share of the columns; the partial results are summed."""

    def __init__(self, in_features: int, out_features: int, bias: bool, place: Placement) -> None:
        share = place.tp.shard("in_features", in_features)
        bias_vector = place.parameter(out_features) if bias else None
        weight, has_bias = place.parameter(out_features, share), place.tp.rank == 0
        super().__init__(
            *(weight, bias_vector, place.tp, place.scratch),
            biased=has_bias,
            quantization=place.quantization,
            deterministic=place.deterministic,
        )
        self.shape, self.start = (out_features, in_features), place.tp.rank * share

    def slots(self) -> dict[str, WeightSlot]:
        assert self.weight is not None
        slots = {"weight": self.slot(self.shape, self.weight, dim=1, start=self.start)}
        if self.bias is not None:
            slots["bias"] = WeightSlot(self.shape[:1], self.bias)
        return slots

    def partial(self, x: torch.Tensor) -> torch.Tensor:
        """This rank's term of the sum; rank 0's carries the bias."""
        return self.multiply(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[T, in / tp_size] -> [T, out], the same on every rank."""
        return all_reduce(self.partial(x), self.tp)
