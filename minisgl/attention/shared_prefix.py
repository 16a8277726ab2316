"""Which rows of a batch begin with the same pages, so that attention can read those pages once for all of them.

Shape letters: B rows of the batch, P pages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from minisgl.attention.index import IntArray
from minisgl.utils.math import div_ceil


class GroupCost(NamedTuple):
    """What reading a prefix once for a group of rows costs, in tokens that one row alone would read meanwhile.

    rows: so many for each token of the prefix; tokens: so many besides, for the calls. Both were fitted to
    measurements (docs/lab-notes.md).
    """

    rows: int
    tokens: int


GATHERED = GroupCost(rows=1, tokens=512)  # where the row alone would have its keys gathered into a bucket
PAGED = GroupCost(rows=8, tokens=10_000)  # where a kernel would read them in place


class SharedPrefix(NamedTuple):
    """rows: ascending row numbers, at least two. num_pages: how many leading pages they all have in common."""

    rows: IntArray
    num_pages: int

    def saved_pages(self, cost: GroupCost) -> int:
        """Page reads that are spared when the prefix is read once, less those that doing so costs for each page."""
        return (len(self.rows) - cost.rows) * self.num_pages


def find_shared_prefixes(
    table: IntArray, num_pages: IntArray, page_size: int, cost: GroupCost = GATHERED
) -> list[SharedPrefix]:
    """Disjoint groups of rows that share a prefix worth reading once.

    table [B, P]: page numbers by row. num_pages [B]: how many of a row's leading pages may be shared.
    A row is in one group at most: where groups nest, as in a tree, the level that spares more is taken.
    """
    return _best_groups(_tree(table, num_pages), cost, div_ceil(cost.tokens, page_size))


class _Node(NamedTuple):
    """Rows that agree on their first pages, and the node of more rows that agree on fewer; None at the root."""

    prefix: SharedPrefix
    parent: int | None


def _tree(table: IntArray, num_pages: IntArray) -> list[_Node]:
    """All groups of rows, parents before children. The root has every row."""
    nodes = [_Node(SharedPrefix(np.arange(len(num_pages)), 0), None)]
    for index, (prefix, _) in enumerate(nodes):  # which grows meanwhile
        longer = prefix.rows[num_pages[prefix.rows] > prefix.num_pages]
        for rows in _clusters(table, longer, prefix.num_pages):
            nodes.append(_Node(SharedPrefix(rows, _common_pages(table, num_pages, rows, prefix.num_pages)), index))
    return nodes


def _best_groups(nodes: list[_Node], cost: GroupCost, min_saved_pages: int) -> list[SharedPrefix]:
    """For every node, from the leaves on: its own group, or the best ones below it."""
    below: list[list[SharedPrefix]] = [[] for _ in nodes]
    for (prefix, parent), deeper in zip(reversed(nodes), reversed(below), strict=True):
        if parent is None:
            return deeper
        saved_deeper = sum(group.saved_pages(cost) for group in deeper)
        here = prefix.saved_pages(cost) >= max(min_saved_pages, saved_deeper)
        below[parent][:0] = [prefix] if here else deeper
    raise AssertionError("there is no root")


def _clusters(table: IntArray, rows: IntArray, depth: int) -> Iterator[IntArray]:
    """The sets of two and more rows that have the same page at `depth`."""
    pages = table[rows, depth]
    for page in np.unique(pages):
        same = rows[pages == page]
        if len(same) > 1:
            yield same


def _common_pages(table: IntArray, num_pages: IntArray, rows: IntArray, depth: int) -> int:
    """How many leading pages all `rows` share, who are known to share `depth`."""
    heads = table[rows, depth : num_pages[rows].min()]
    differs = (heads != heads[0]).any(axis=0)
    return depth + (int(differs.argmax()) if differs.any() else len(differs))
