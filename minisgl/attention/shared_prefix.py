"""Which rows of a batch begin with the same pages, so that attention can read those pages once for all of them.

Shape letters: B rows of the batch, P pages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from minisgl.attention.index import IntArray
from minisgl.utils.math import div_ceil

# A group pays when it spares the reading of this many tokens a layer. Its own cost, one more call and one merge, is
# about 0.1 ms, what gathering and reading 500 tokens of KV in a bucket costs (benchmarks/bench_attention.py).
MIN_SAVED_TOKENS = 512


class SharedPrefix(NamedTuple):
    """rows: ascending row numbers, at least two. num_pages: how many leading pages they all have in common."""

    rows: IntArray
    num_pages: int

    @property
    def saved_pages(self) -> int:
        """Page reads that are spared when the prefix is read once."""
        return (len(self.rows) - 1) * self.num_pages


def find_shared_prefixes(table: IntArray, num_pages: IntArray, page_size: int) -> list[SharedPrefix]:
    """Disjoint groups of rows that share a prefix worth reading once (`MIN_SAVED_TOKENS`).

    table [B, P]: page numbers by row. num_pages [B]: how many of a row's leading pages may be shared.
    A row is in one group at most: where groups nest, as in a tree, the level that spares more is taken.
    """
    min_saved_pages = div_ceil(MIN_SAVED_TOKENS, page_size)
    return _best_groups(table, num_pages, np.arange(len(num_pages)), 0, min_saved_pages)


def _best_groups(
    table: IntArray, num_pages: IntArray, rows: IntArray, depth: int, min_saved_pages: int
) -> list[SharedPrefix]:
    """The best grouping of `rows`, which are known to agree on their first `depth` pages."""
    best: list[SharedPrefix] = []
    for cluster in _clusters(table, rows[num_pages[rows] > depth], depth):
        here = SharedPrefix(cluster, _common_pages(table, num_pages, cluster))
        deeper = _best_groups(table, num_pages, cluster, here.num_pages, min_saved_pages)
        if here.saved_pages >= max(min_saved_pages, sum(group.saved_pages for group in deeper)):
            best.append(here)
        else:
            best += deeper
    return best


def _clusters(table: IntArray, rows: IntArray, depth: int) -> Iterator[IntArray]:
    """The sets of two and more rows that have the same page at `depth`."""
    pages = table[rows, depth]
    for page in np.unique(pages):
        same = rows[pages == page]
        if len(same) > 1:
            yield same


def _common_pages(table: IntArray, num_pages: IntArray, rows: IntArray) -> int:
    """How many leading pages all `rows` share."""
    heads = table[rows, : num_pages[rows].min()]
    differs = (heads != heads[0]).any(axis=0)
    return int(differs.argmax()) if differs.any() else len(differs)
