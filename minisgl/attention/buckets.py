"""Rows of unlike lengths in few rectangles: each bucket is padded to its longest row."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from minisgl.attention.index import IntArray

# One more bucket costs three calls, about 0.1 ms a layer: what reading this many padding tokens costs.
MAX_PADDING = 1024


def length_buckets(lengths: IntArray, max_tokens: int) -> Iterator[IntArray]:
    """Row numbers bucket by bucket, ascending in each; every row in one bucket.

    lengths [B], each at least 1. A bucket holds at most `max_tokens` tokens, padding included, unless one row alone
    is longer, and at most `MAX_PADDING` of them are padding.
    """
    order = np.argsort(lengths, kind="stable")
    begin, padding = 0, 0
    for end in range(1, len(order)):
        size, longest = end - begin, int(lengths[order[end]])
        padding += size * (longest - int(lengths[order[end - 1]]))
        if padding > MAX_PADDING or (size + 1) * longest > max_tokens:
            yield np.sort(order[begin:end])
            begin, padding = end, 0
    if len(order) > 0:
        yield np.sort(order[begin:])
