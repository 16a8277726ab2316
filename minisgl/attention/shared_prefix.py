"""Which of the prefixes that rows of a batch share are read once for all of them: those where that pays.

Shape letters: B rows of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from minisgl.attention.index import IntArray
from minisgl.core import PrefixGroup

# Ranges that are read before a row's own one, at most: each has partial results to join, and memory set aside for it.
MAX_LEVELS = 4


class GroupCost(NamedTuple):
    """What reading a range once for a group of rows costs, in tokens that one row alone would read meanwhile.

    rows: so many for each token of the range, and for each `tile` rows begun. tokens: so many besides, for every
    group. batch: so many besides, once, if there is any group.
    """

    rows: float
    tokens: int
    tile: int = 1 << 30
    batch: int = 0

    def saved(self, num_rows: int, num_tokens: int) -> float:
        """Token reads that a group spares, less what it costs."""
        return (num_rows - self.rows * -(-num_rows // self.tile)) * num_tokens - self.tokens


# On a CPU, fitted to measurements (docs/lab-notes.md).
GATHERED = GroupCost(rows=1, tokens=512)  # where the row alone would have its keys gathered into a bucket
IN_PLACE = GroupCost(rows=1, tokens=64)  # where a kernel reads them in place: a chunk of two rows pays


class SharedRange(NamedTuple):
    """Positions [begin, end) of `rows`, at least two, which lie in the same slots."""

    rows: IntArray
    begin: int
    end: int


class SharedRanges(NamedTuple):
    """ranges: what is read once for several rows. own_begins: [B] int64, up to where a row is read in such ranges."""

    ranges: list[SharedRange]
    own_begins: npt.NDArray[np.int64]


def choose_shared(groups: Sequence[PrefixGroup], members: npt.NDArray[np.bool_], cost: GroupCost) -> SharedRanges:
    """The ranges of `groups` (see `Batch`) that pay for those rows that are `members` [B].

    A level that does not pay is left to those below it, and in the end to the rows themselves.
    """
    deepest = np.zeros(len(members), np.int64)  # of the ranges so far, counted from 1, the last that each row reads
    everyone = bool(members.all())
    ranges: list[SharedRange] = []
    ends, levels = [0], [0]  # by those numbers; 0 is none
    saved: float = -cost.batch
    for group in groups:
        rows = group.rows if everyone else group.rows[members[group.rows]]
        if len(rows) < 2:
            continue
        above = deepest[rows[0]]  # they have all their ancestors in common
        begin, end = ends[above], group.end
        saved_here = cost.saved(len(rows), end - begin)
        if saved_here >= 0 and levels[above] < MAX_LEVELS:
            saved += saved_here
            ranges.append(SharedRange(rows, begin, end))
            ends.append(end)
            levels.append(levels[above] + 1)
            deepest[rows] = len(ranges)
    if saved < 0:
        return SharedRanges([], np.zeros_like(deepest))
    return SharedRanges(ranges, np.array(ends)[deepest])


class SharedChooser:
    """`choose_shared` for the decodes of a batch, thought over only when the groups are not those of the last one."""

    def __init__(self, cost: GroupCost) -> None:
        self._cost = cost
        self._last: tuple[Sequence[PrefixGroup], int, int] = ((), 0, 0)
        self._chosen = SharedRanges([], np.zeros(0, np.int64))

    def choose(self, groups: Sequence[PrefixGroup], num_rows: int, num_decodes: int) -> SharedRanges:
        """The first `num_decodes` of `num_rows` rows decode. `groups`: the same object as long as they are the same."""
        if self._last[0] is not groups or self._last[1:] != (num_rows, num_decodes):
            self._chosen = choose_shared(groups, np.arange(num_rows) < num_decodes, self._cost)
            self._last = groups, num_rows, num_decodes
        return self._chosen
