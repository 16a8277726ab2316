"""What attention in parts is made of: the fields of work items, where partial results lie, how scores become weights,
how large the pieces are.

Shape letters: B rows, N partial results, Hq query heads, Hkv KV heads, G query heads that share one, D head dim.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch

# int32 fields of an item of `paged_decode`: row, its page-table row, begin, end, first item of the row, items of the
# row (0: joined by `merge_partials`).
ITEM_FIELDS = 6
# ... of `tile_attention`: first query (in the list of queries), queries, page-table row, begin, end, partial result of
# the first query (-1: this is all there is), position of the first query.
TILE_FIELDS = 7

REGISTERS_PER_SM = 65_536


class Partials(NamedTuple):
    """Attention to some of the keys of a query.

    o: [N, Hq, D] float32. lse: [N, Hq] float32, the log-sum-exp to base 2. arrivals: [B * Hkv] int32, items of a row
    that are done; 0 between calls. beside: whether `paged_decode` runs beside the `tile_attention` launched before it,
    of which it needs nothing, where the hardware can.
    """

    o: torch.Tensor
    lse: torch.Tensor
    arrivals: torch.Tensor
    beside: bool = False


class Weighing(NamedTuple):
    """How scores become weights. scale: of q . k. softcap: a score s becomes softcap * tanh(s / softcap); 0: as it is.
    sinks: [Hq], any float dtype: each head's softmax has one more score, which has no value.
    """

    scale: float
    softcap: float = 0.0
    sinks: torch.Tensor | None = None


def new_partials(
    num_partials: int, num_rows: int, num_qo_heads: int, num_kv_heads: int, head_dim: int, device: torch.device
) -> Partials:
    sizes = (num_partials, num_qo_heads, head_dim)
    assert num_partials * num_qo_heads * head_dim < 1 << 31, f"{sizes} partial results: kernels count in 31 bits"
    return Partials(
        torch.empty(sizes, dtype=torch.float32, device=device),
        torch.empty(sizes[:2], dtype=torch.float32, device=device),
        torch.zeros(num_rows * num_kv_heads, dtype=torch.int32, device=device),
    )


class DecodeConfig(NamedTuple):
    """block: keys a step. stages: steps whose loads are under way. programs_per_sm: so many run beside one another."""

    block: int
    num_warps: int
    stages: int
    programs_per_sm: int

    @property
    def registers(self) -> int:
        """The most that a thread may have, so that they do."""
        return min(255, REGISTERS_PER_SM // (32 * self.num_warps * self.programs_per_sm) // 8 * 8)


class TileConfig(NamedTuple):
    """rows: of a tile, G for each query. block: keys a step. stages: steps whose loads are under way."""

    rows: int
    block: int
    num_warps: int
    stages: int


def decode_config(dtype: torch.dtype, head_dim: int) -> DecodeConfig:
    """How `paged_decode` runs on a GPU: what was best on an H200, in sizes that others have room for, too."""
    if dtype == torch.float32:
        return DecodeConfig(block=32, num_warps=4, stages=2, programs_per_sm=2)
    if head_dim > 128:
        return DecodeConfig(block=32, num_warps=4, stages=3, programs_per_sm=3)
    return DecodeConfig(block=64, num_warps=4, stages=3, programs_per_sm=3)


def tile_config(dtype: torch.dtype, head_dim: int) -> TileConfig:
    """How `tile_attention` runs on a GPU, likewise (docs/lab-notes.md): larger pieces where there is room for them."""
    if dtype == torch.float32:
        return TileConfig(rows=32, block=32 if head_dim <= 128 or _room() >= 101 else 16, num_warps=4, stages=2)
    if head_dim <= 128:
        return TileConfig(rows=128, block=64, num_warps=8, stages=3 if _room() >= 128 else 2)
    if _room() >= 193:
        return TileConfig(rows=128, block=64, num_warps=8, stages=2)
    return TileConfig(rows=64, block=32, num_warps=4, stages=2)


@cache
def _room() -> int:
    """KiB of shared memory that a program may have: 227 on an H100, 163 on an A100, 99 on other GPUs. The system keeps
    1 of a multiprocessor's. 0 where there is no GPU."""
    if not torch.cuda.is_available():
        return 0
    return (torch.cuda.get_device_properties().shared_memory_per_multiprocessor >> 10) - 1
