"""Which share of every weight this process holds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TPInfo:
    """This process is `rank` of `size` that share one model. ValueError unless 0 <= rank < size."""

    rank: int = 0
    size: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.size:
            raise ValueError(f"tp_rank={self.rank} is not within tp_size={self.size}")

    def shard(self, name: str, total: int) -> int:
        """How many of `total` things each rank holds; ValueError that names them if the ranks cannot share evenly."""
        if total % self.size != 0:
            raise ValueError(f"tp_size={self.size} does not divide {name}={total}")
        return total // self.size


SINGLE = TPInfo()
