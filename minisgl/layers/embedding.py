"""Token ids to vectors, and hidden states to logits; each rank holds an equal share of the vocabulary.

Where the ranks cannot share it evenly, the last rows of the last ranks are zeros, and belong to no token.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from minisgl.distributed import TPInfo, all_gather, all_reduce
from minisgl.kernel import look_up
from minisgl.kernel.quantizer import quantize
from minisgl.layers.base import Layer, Placement, WeightSlot
from minisgl.layers.linear import Linear
from minisgl.layers.packed import MADE_BITS
from minisgl.utils.grouped_tensor import GroupedTensor
from minisgl.utils.math import div_ceil


class _Share(NamedTuple):
    """Rows [start, start + held) of a table, in the first of `size` rows of memory."""

    start: int
    held: int
    size: int

    @classmethod
    def of(cls, vocab_size: int, tp: TPInfo) -> _Share:
        size = div_ceil(vocab_size, tp.size)
        start = min(tp.rank * size, vocab_size)
        return cls(start, min(size, vocab_size - start), size)

    def parameter(self, hidden_size: int, place: Placement) -> nn.Parameter:
        weight = place.parameter(self.size, hidden_size)
        weight[self.held :].zero_()
        return weight


class VocabParallelEmbedding(Layer):
    """This rank's rows of the embedding table [V, H]."""

    def __init__(self, vocab_size: int, hidden_size: int, place: Placement) -> None:
        super().__init__()
        self.tp, self.shape = place.tp, (vocab_size, hidden_size)
        self.share = _Share.of(vocab_size, place.tp)
        self.weight: nn.Parameter | None = self.share.parameter(hidden_size, place)
        self.dtype = place.dtype
        self.give_groups: Callable[[GroupedTensor], None] | None = None  # to a head that is tied to this
        self._quantization = place.quantization
        self._table: GroupedTensor | None = None  # in place of the weight

    def slots(self) -> dict[str, WeightSlot]:
        assert self.weight is not None
        keeps_groups = self.give_groups is not None or self._quantization != "none"
        return {
            "weight": WeightSlot(
                *(self.shape, self.weight[: self.share.held]),
                start=self.share.start,
                take_groups=self._take_groups if keeps_groups else None,
                take=self._quantize if self._quantization in MADE_BITS else None,
            )
        }

    def _quantize(self, tensor: torch.Tensor) -> None:
        self._take_groups(quantize(tensor, bits=8))

    def _take_groups(self, tensor: GroupedTensor) -> None:
        """Rows are made floats when they are looked up, which gives the same ones: a third of the memory, of SmolLM2 in
        float32 35 MB instead of 113, and 0.1 s less to load."""
        if self.give_groups is not None:
            self.give_groups(tensor)
        self._table = tensor

    def pack(self) -> None:
        if self._table is not None:
            self.weight = None

    def _rows(self, ids: torch.Tensor) -> torch.Tensor:
        """[T, H], of ids among the rows that this rank holds."""
        if self._table is None:
            assert self.weight is not None
            return F.embedding(ids, self.weight)
        return look_up(self._table.scale, self._table.offset, self._table.codes, ids, self.dtype)

    def partial(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Vectors of the ids that this rank holds, zeros for the others."""
        local = input_ids - self.share.start
        absent = (local < 0) | (local >= self.share.size)
        return self._rows(local.masked_fill(absent, 0)).masked_fill_(absent[:, None], 0)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """input_ids: [T] int32 or int64 -> [T, H], the same on every rank, in memory of its own."""
        if self.tp.size == 1:
            return self._rows(input_ids)
        return all_reduce(self.partial(input_ids), self.tp)


class LMHead(Linear):
    """Hidden states to logits, by weights of its own or, tied, by those of the embedding.

    Packing copies a tied weight, since the look-up needs it too. Measured on SmolLM2's head (2 threads, 8 rows): 2.4 ms
    packed against 5.5 in bfloat16, 5.0 against 22 in float32, of a step of 15 to 40 ms: worth 57 and 113 MB.
    """

    def __init__(
        self, vocab_size: int, hidden_size: int, place: Placement, tied_to: VocabParallelEmbedding | None = None
    ) -> None:
        share = _Share.of(vocab_size, place.tp)
        weight = share.parameter(hidden_size, place) if tied_to is None else tied_to.weight
        assert weight is not None
        all_of_it = tied_to is None and share.held == share.size
        quantization = "int8" if place.quantization in MADE_BITS else place.quantization
        scratch = place.scratch if all_of_it else None
        super().__init__(weight, None, place.tp, scratch, quantization=quantization, deterministic=place.deterministic)
        self.shape, self.share = (vocab_size, hidden_size), share
        self.tied = tied_to is not None
        if tied_to is not None:
            tied_to.give_groups = self._slot(weight).take_groups

    def slots(self) -> dict[str, WeightSlot]:
        assert self.weight is not None
        if self.tied:
            return {}
        return {"weight": self._slot(self.weight)}

    def _slot(self, weight: torch.Tensor) -> WeightSlot:
        return self.slot(self.shape, weight[: self.share.held], start=self.share.start)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[N, H] -> [N, V] of the model's dtype, rows any stride apart; the same on every rank."""
        return all_gather(self.multiply(hidden), self.tp)[:, : self.shape[0]]
