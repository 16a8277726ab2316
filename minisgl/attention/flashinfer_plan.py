"""What FlashInfer is to read for one batch, in NumPy: runs of pages, and who shares which.

Shape letters: B rows of the batch, D decode rows (the first of them), N runs, R partial results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minisgl.attention.shared_prefix import GroupCost, SharedRange
from minisgl.utils.arrays import Int32Array
from minisgl.utils.math import div_ceil

# Break even: 6k tokens of 8 rows, 1.6k of 32, 400 of 128 (one H200, 32 heads in groups of 4).
COST = GroupCost(rows=1, tokens=48_000)
# A piece more of a prefix is one more result for each row to join: as dear as reading so many more tokens.
PIECE_TOKENS = 256
FA3_TILE, MAX_PIECES = 128, 8
FA2_TILE = 16
FA3_SPEED = 1.6  # times that of FA2, where its tiles are full


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Tokens [begins, ends) of page-table rows, each [N] int32. begins: multiples of the page size. Row -1: page 0."""

    rows: Int32Array
    begins: Int32Array
    ends: Int32Array

    @classmethod
    def joined(cls, parts: Sequence[Runs]) -> Runs:
        """One after the other."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("rows", "begins", "ends")))

    def padded(self, num_runs: int) -> Runs:
        """With runs of one token in page 0 behind, so that there are `num_runs`."""
        more = num_runs - len(self.rows)
        assert more >= 0, f"{len(self.rows)} rows do not fit a graph of {num_runs}"
        padding = Runs(*(np.full(more, value, np.int32) for value in (-1, 0, 1)))
        return Runs.joined([self, padding])

    def num_pages(self, page_size: int) -> Int32Array:
        """[N]: how many pages each lies in."""
        pages: Int32Array = (self.ends + page_size - 1) // page_size - self.begins // page_size
        return pages


def tokens_spared(ranges: Sequence[SharedRange]) -> int:
    """Tokens that are read less often when these are read once each."""
    return sum((len(rows) - 1) * (end - begin) for rows, begin, end in ranges)


def prefers_fa3(ranges: Sequence[SharedRange], group: int) -> bool:
    """Whether FA3 is the faster one: its tiles are of one head's queries, those of FA2 of a whole group's."""
    fa3 = sum(div_ceil(len(rows), FA3_TILE) * FA3_TILE * (end - begin) for rows, begin, end in ranges)
    fa2 = sum(max(len(rows), FA2_TILE / group) * (end - begin) for rows, begin, end in ranges)
    return fa3 / FA3_SPEED < fa2


def cut_ranges(ranges: Sequence[SharedRange], num_qo_heads: int, num_sms: int, page_size: int) -> list[SharedRange]:
    """Pieces of equal length, as many as give all SMs work for FA3, which does not cut what it reads by itself."""
    longest = max(end - begin for _, begin, end in ranges)
    tiles = num_qo_heads * sum(div_ceil(len(rows), FA3_TILE) for rows, _, _ in ranges)

    def cost(pieces: int) -> float:
        return div_ceil(tiles * pieces, num_sms) * longest / pieces + PIECE_TOKENS * pieces

    num_tokens = div_ceil(longest, min(range(1, MAX_PIECES + 1), key=cost))
    step = div_ceil(num_tokens, page_size) * page_size
    return [
        SharedRange(rows, first, min(first + step, end))
        for rows, begin, end in ranges
        for first in range(begin, end, step)
    ]


def merge_parts(pieces: Sequence[SharedRange], num_decodes: int) -> tuple[Int32Array, Int32Array]:
    """[R]: which partial results make up each row, row by row; [D + 1]: where each row's begin.

    The results are the D own ones, then those of the pieces, row by row.
    """
    rows = np.concatenate([np.arange(num_decodes), *(rows for rows, _, _ in pieces)])
    begins = np.concatenate([[0], np.cumsum(np.bincount(rows))])
    return np.argsort(rows, kind="stable").astype(np.int32), begins.astype(np.int32)
