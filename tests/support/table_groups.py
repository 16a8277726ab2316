"""The groups of rows that share a prefix, read off a page table: what the scheduler finds in the radix tree."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from minisgl.core import PrefixGroup


def find_groups(table: np.ndarray, num_pages: np.ndarray, page_size: int) -> tuple[PrefixGroup, ...]:
    """`Batch.groups` of rows with those pages. table [B, P]; num_pages [B]: how many leading ones may be shared."""
    return tuple(_groups(table, num_pages, page_size))


def _groups(table: np.ndarray, num_pages: np.ndarray, page_size: int) -> Iterator[PrefixGroup]:
    found = [(np.arange(len(table), dtype=np.int32), 0)]
    for rows, depth in found:  # which grows meanwhile
        longer = rows[num_pages[rows] > depth]
        for page in np.unique(table[longer, depth]) if len(longer) else ():
            same = longer[table[longer, depth] == page]
            if len(same) > 1:
                heads = table[same, : num_pages[same].min()]
                differs = (heads != heads[0]).any(axis=0)
                end = int(differs.argmax()) if differs.any() else len(differs)
                yield PrefixGroup(same, depth * page_size, end * page_size)
                found.append((same, end))
