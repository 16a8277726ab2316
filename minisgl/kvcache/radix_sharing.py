"""Which of several prefixes lie in the same pages, so that attention may read those pages once for all of them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from minisgl.core import PrefixGroup
from minisgl.kvcache.radix_node import RadixNode


def find_groups(ends: Iterable[RadixNode]) -> tuple[PrefixGroup, ...]:
    """The groups of `Batch.groups` for rows whose prefixes end with these nodes, all of them locked.

    Looks once at each node on their ways. Nodes one after another with the same rows below them are one group.
    """
    levels: dict[RadixNode, _Level] = {}
    for node, below in _rows_below(ends).items():
        if len(below) > 1:
            levels[node] = level = _level_of(below, levels[node.parent] if node.parent is not None else None)
            level.end += node.length
    return tuple([level.group() for level in dict.fromkeys(levels.values()) if level.end > level.begin])


class _Level:
    """A group that is being found; it ends where its last node does. Of roots, too, which have no tokens."""

    __slots__ = ("begin", "end", "rows")

    def __init__(self, rows: list[int], begin: int) -> None:
        self.rows = rows
        self.begin = self.end = begin

    def group(self) -> PrefixGroup:
        rows = np.array(self.rows, np.int32)
        rows.sort()
        return PrefixGroup(rows, self.begin, self.end)


def _level_of(below: list[int], above: _Level | None) -> _Level:
    """Of a node with these rows below it: its parent's, if they are all of the parent's, or a new one."""
    if above is None:
        return _Level(below, 0)
    return above if len(below) == len(above.rows) else _Level(below, above.end)


def _rows_below(ends: Iterable[RadixNode]) -> dict[RadixNode, list[int]]:
    """For each node that a row leads through or ends with, these rows; parents before children."""
    rows: dict[RadixNode, list[int]] = {}
    for row, end in enumerate(ends):
        if end in rows:
            rows[end].append(row)
        elif end.parent in rows:  # as most do: below something shared, with a last node of their own
            rows[end] = [row]
        else:
            for node in reversed(_way_to_known(rows, end)):
                rows[node] = []
            rows[end].append(row)
    for node, below in reversed(rows.items()):
        if node.parent is not None:
            rows[node.parent] += below
    return rows


def _way_to_known(rows: dict[RadixNode, list[int]], end: RadixNode) -> list[RadixNode]:
    """The nodes from `end` upwards that are not in `rows`."""
    way: list[RadixNode] = []
    node: RadixNode | None = end
    while node is not None and node not in rows:
        way.append(node)
        node = node.parent
    return way
