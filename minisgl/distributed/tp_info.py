"""Which share of every weight this process holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minisgl.distributed.group import RankGroup


@dataclass(frozen=True)
class TPInfo:
    """This process is `rank` of `size` that share one model. ValueError unless 0 <= rank < size.

    group: how they talk to each other; None for shapes alone, and for one rank.
    """

    rank: int = 0
    size: int = 1
    group: RankGroup | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.size:
            raise ValueError(f"tp_rank={self.rank} is not within tp_size={self.size}")

    @property
    def joined(self) -> RankGroup:
        """The group, which must be there: a layer computes."""
        assert self.group is not None, f"rank {self.rank} of {self.size} has joined no group"
        return self.group

    def shard(self, name: str, total: int) -> int:
        """How many of `total` things each rank holds; ValueError that names them if the ranks cannot share evenly."""
        if total % self.size != 0:
            raise ValueError(f"tensor_parallel_size={self.size} does not divide {name}={total}")
        return total // self.size

    def least(self, value: int) -> int:
        """The least of every rank's value."""
        return value if self.size == 1 else self.joined.least(value)


SINGLE = TPInfo()
