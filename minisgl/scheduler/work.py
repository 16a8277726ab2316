"""What the next batch computes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import compress
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from minisgl.core.batch import Int32Array, Member
from minisgl.scheduler.request import Request
from minisgl.scheduler.rows import RowIndex

Prompt = tuple[Request, int]  # a running request, and how many tokens known at its admission are computed


class Lineup:
    """Running requests in the order of a batch's rows. It stays the same object as long as they do.

    members: as batches have them. table_idxs: [N], their rows of the page table.
    """

    __slots__ = ("members", "requests", "table_idxs")

    def __init__(self, requests: Iterable[Request]) -> None:
        self.requests = tuple(requests)
        self.members: tuple[Member, ...] = tuple([each.member for each in self.requests if each.member is not None])
        self.table_idxs: RowIndex = np.array([member.table_idx for member in self.members], np.intp)

    def __len__(self) -> int:
        return len(self.requests)

    def kept(self, is_kept: npt.NDArray[np.bool_]) -> Lineup:
        """Those for which it says so."""
        return self if is_kept.all() else Lineup(compress(self.requests, is_kept.tolist()))


class Work(NamedTuple):
    """counts: [N] int32, the tokens that each of `lineup` computes. prompts: of these, the rows after all decodes."""

    lineup: Lineup
    counts: Int32Array
    prompts: list[Prompt]

    @classmethod
    def of(cls, decodes: Lineup, prompts: list[Prompt]) -> Work:
        """One token of each of `decodes`, then `prompts`."""
        counts = np.ones(len(decodes) + len(prompts), np.int32)
        if not prompts:
            return cls(decodes, counts, prompts)
        requests, counts[len(decodes) :] = zip(*prompts, strict=True)
        return cls(Lineup(decodes.requests + requests), counts, prompts)
