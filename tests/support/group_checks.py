"""Recounts the groups of a batch: what its rows share of the pages that the prefix cache keeps for them."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import numpy.typing as npt

from minisgl.core import Batch, PrefixGroup
from minisgl.scheduler.cache_manager import CacheManager
from minisgl.utils.arrays import Int32Array


def check_groups(
    batch: Batch, page_table: npt.NDArray[np.int64], manager: CacheManager, are_complete: bool = True
) -> None:
    """page_table: the engine's, as the batch reads it. are_complete: whether all that is shared must be in a group.

    AssertionError naming what is wrong with the batch's groups."""
    _check_shape(batch, manager.page_size)
    size = manager.page_size
    rows = [page_table[req.table_idx] for req in batch.reqs]
    kept = [manager._live[req.table_idx].handle.get_matched_pages() for req in batch.reqs]  # locked while they run
    for group in batch.groups:
        columns = slice(group.begin // size, group.end // size)
        for row in group.rows:
            assert group.end <= len(kept[row]) * size, f"row {row} may lose its pages before {group.end}"
            assert np.array_equal(rows[row][columns], rows[group.rows[0]][columns]), f"row {row} has other pages"
    shared = np.zeros((len(rows), len(rows)), np.int64)
    for group in batch.groups:
        shared[np.ix_(group.rows, group.rows)] += group.end - group.begin
    if are_complete:
        for a, b in combinations(range(len(rows)), 2):
            assert shared[a, b] == _common_len(kept[a], kept[b]) * size, f"rows {a} and {b} share another length"


def _check_shape(batch: Batch, page_size: int) -> None:
    """A forest, parents first, each level a further run of whole pages that was computed before."""
    for index, group in enumerate(batch.groups):
        assert len(group.rows) > 1
        assert (np.diff(group.rows) > 0).all()
        assert group.begin % page_size == group.end % page_size == 0
        assert group.begin < group.end <= batch.cached_lens[group.rows].min()
        assert group.begin == 0 or any(_is_parent(before, group) for before in batch.groups[:index])


def _is_parent(group: PrefixGroup, child: PrefixGroup) -> bool:
    return (
        group.end == child.begin and len(group.rows) > len(child.rows) and bool(np.isin(child.rows, group.rows).all())
    )


def _common_len(a: Int32Array, b: Int32Array) -> int:
    length = min(len(a), len(b))
    differs = np.flatnonzero(a[:length] != b[:length])
    return int(differs[0]) if len(differs) else length
