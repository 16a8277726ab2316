"""What the next batch computes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from minisgl.core.req import Member
from minisgl.scheduler.request import Request
from minisgl.scheduler.rows import RowIndex
from minisgl.utils.arrays import Int32Array

Prompt = tuple[Request, int]  # a running request, and how many tokens known at its admission are computed


class Lineup:
    """Running requests in the order of a batch's rows. It stays the same object as long as they do.

    members: as batches have them. table_idxs: [N], their rows of the page table.
    """

    __slots__ = ("members", "requests", "table_idxs")

    def __init__(self, requests: tuple[Request, ...], members: tuple[Member, ...], table_idxs: RowIndex) -> None:
        self.requests = requests
        self.members = members
        self.table_idxs = table_idxs

    @classmethod
    def of(cls, requests: Sequence[Request]) -> Lineup:
        members = tuple([request.member for request in requests if request.member is not None])
        return cls(tuple(requests), members, np.array([member.table_idx for member in members], np.intp))

    def __len__(self) -> int:
        return len(self.requests)

    def __add__(self, other: Lineup) -> Lineup:
        table_idxs = np.concatenate([self.table_idxs, other.table_idxs])
        return Lineup(self.requests + other.requests, self.members + other.members, table_idxs)

    def kept(self, is_kept: npt.NDArray[np.bool_]) -> Lineup:
        """Those for which it says so."""
        if is_kept.all():
            return self
        kept = is_kept.tolist()
        return Lineup(
            tuple(compress(self.requests, kept)), tuple(compress(self.members, kept)), self.table_idxs[is_kept]
        )


NOBODY = Lineup.of(())


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
        counts[len(decodes) :] = [num_tokens for _, num_tokens in prompts]
        return cls(decodes + Lineup.of([request for request, _ in prompts]), counts, prompts)
