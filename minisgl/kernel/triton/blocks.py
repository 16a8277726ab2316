"""What the attention kernels have in common: one step of the softmax over a block of keys, and where these lie.

Shape letters: M queries of a tile, N keys of a block, D head dim.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2_E = 1.4426950408889634


@triton.jit
def load_slots(table, positions, end, PAGE_SIZE: tl.constexpr):
    """Slots of positions of a row, int32. Past the end the last one, for others may hold NaN, which no mask stops."""
    safe = tl.minimum(positions, end - 1)
    return tl.load(table + safe // PAGE_SIZE) * PAGE_SIZE + safe % PAGE_SIZE


@triton.jit
def attend_block(q, keys, values, seen, is_masked, best, total, acc, scale, PRECISION: tl.constexpr):
    """q [M, D] to keys, values [N, D], where seen [M, N] if is_masked: the new maximum and sum [M], output [M, D].

    scale: that of the scores, times log2 e. A query that has seen nothing yet has the maximum -inf and the sum 0.
    """
    scores = tl.dot(q, tl.trans(keys), input_precision=PRECISION)
    if is_masked:
        scores = tl.where(seen, scores, float("-inf"))
    new_best = tl.maximum(best, tl.max(scores, 1) * scale)
    shift = tl.where(new_best == float("-inf"), 0.0, new_best)
    shrink = tl.exp2(best - shift)
    weights = tl.exp2(scores * scale - shift[:, None])
    total = total * shrink + tl.sum(weights, 1)
    acc = tl.dot(weights.to(values.dtype), values, acc * shrink[:, None], input_precision=PRECISION)
    return new_best, total, acc
