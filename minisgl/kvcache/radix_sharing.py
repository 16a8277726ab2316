"""Which of several prefixes lie in the same pages, so that attention may read those pages once for all of them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from minisgl.core import PrefixGroup
from minisgl.kvcache.radix_node import RadixNode


def find_groups(ends: Iterable[RadixNode]) -> tuple[PrefixGroup, ...]:
    """The groups of `Batch.groups` for rows whose prefixes end with these nodes, all of them locked.

    Looks once at each node on their ways. Nodes in a row with the same rows below them are one group.
    """
    rows = _rows_below(ends)
    level_of: dict[RadixNode, _Level] = {}
    levels: list[_Level] = []
    for node, below in rows.items():
        if len(below) < 2:
            continue
        parent = node.parent
        above = level_of.get(parent) if parent is not None else None
        if above is None or len(below) < len(above.rows):
            begin = above.end if above is not None else 0
            above = _Level(below, begin)
            levels.append(above)
        above.end += node.length
        level_of[node] = above
    return tuple(PrefixGroup(np.sort(np.array(level.rows, np.int32)), level.begin, level.end) for level in levels)


class _Level:
    """A group that is being found; it ends where its last node does."""

    __slots__ = ("begin", "end", "rows")

    def __init__(self, rows: list[int], begin: int) -> None:
        self.rows = rows
        self.begin = self.end = begin


def _rows_below(ends: Iterable[RadixNode]) -> dict[RadixNode, list[int]]:
    """For each node that a row leads through or ends with, but the roots, these rows; parents before children."""
    rows: dict[RadixNode, list[int]] = {}
    for row, end in enumerate(ends):
        way, node = [], end
        while node not in rows and node.parent is not None:
            way.append(node)
            node = node.parent
        for node in reversed(way):
            rows[node] = []
        if end.parent is not None:
            rows[end].append(row)
    for node, below in reversed(rows.items()):
        parent = node.parent
        if parent in rows:
            rows[parent] += below
    return rows
