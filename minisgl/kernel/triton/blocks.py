"""What the attention kernels have in common: one step of the softmax over a block of keys, and where these lie.

Shape letters: M queries of a tile, N keys of a block, D head dim.
"""

from __future__ import annotations

import triton
import triton.language as tl

from minisgl.kernel.attention_work import Weighing

LOG2_E = 1.4426950408889634
_LOG2_E = tl.constexpr(LOG2_E)


def in_base_two(weighing: Weighing) -> tuple[float, float]:
    """`scale` and CAP of `attend_block`."""
    if weighing.softcap:
        return 2 * weighing.scale * LOG2_E / weighing.softcap, weighing.softcap * LOG2_E
    return weighing.scale * LOG2_E, 0.0


@triton.jit
def load_item(items, item, last, FIELDS: tl.constexpr):
    """The fields of an item, a tuple; zeros, which is nothing to read, if it is not before the last one."""
    fields = ()
    for field in tl.static_range(FIELDS):
        fields = fields + (tl.load(items + item * FIELDS + field, mask=item < last, other=0),)
    return fields


@triton.jit
def load_pages(table, positions, end, PAGE_SIZE: tl.constexpr):
    """Pages of positions of a row, int32. Past the end the last one, for others may hold NaN, which no mask stops.

    A loop that loads those of its next block has to carry them as they are: Triton then loads keys and values stages
    ahead, which it does not where the loaded pages are used before the loop's next turn.
    """
    return tl.load(table + tl.maximum(tl.minimum(positions, end - 1), 0) // PAGE_SIZE)


@triton.jit
def slots_of(pages, positions, end, PAGE_SIZE: tl.constexpr):
    """Slots, int64, of positions whose pages are loaded."""
    in_page = tl.maximum(tl.minimum(positions, end - 1), 0) % PAGE_SIZE
    return pages.to(tl.int64) * PAGE_SIZE + in_page


@triton.jit
def load_block(k_head, v_head, at, dims, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr):
    """Keys and values [N, D] of a head at offsets `at` [N, D], zeros beyond the head's dims [D]."""
    if HEAD_DIM == BLOCK_D:
        return tl.load(k_head + at), tl.load(v_head + at)
    inside = (dims < HEAD_DIM)[None, :]
    return tl.load(k_head + at, mask=inside, other=0.0), tl.load(v_head + at, mask=inside, other=0.0)


@triton.jit
def absorb_parts(part_o, part_lse, parts, is_part, heads, is_head, dims, best, total, acc, NUM_HEADS: tl.constexpr,
                 HEAD_DIM: tl.constexpr):  # fmt: skip
    """Partial results `parts` [P], where they are any, of heads [G], on top of a maximum and sum [G], output [G, D]."""
    # Heads come first, so that warps are dealt heads and not parts, which they would have to join by barriers.
    at = parts[None, :] * NUM_HEADS + heads[:, None]
    mask = is_part[None, :] & is_head[:, None]
    # Written by other programs, perhaps of this same kernel: not from the cache nearest.
    lse = tl.load(part_lse + at, mask=mask, other=float("-inf"), cache_modifier=".cg")
    inside = mask[:, :, None] & (dims < HEAD_DIM)[None, None, :]
    o_at = at[:, :, None] * HEAD_DIM + dims[None, None, :]
    o = tl.load(part_o + o_at, mask=inside, other=0.0, cache_modifier=".cg")
    new_best = tl.maximum(best, tl.max(lse, 1))
    shift = tl.where(new_best == float("-inf"), 0.0, new_best)
    shrink = tl.exp2(best - shift)
    weights = tl.exp2(lse - shift[:, None])
    total = total * shrink + tl.sum(weights, 1)
    acc = acc * shrink[:, None] + tl.sum(o * weights[:, :, None], 1)
    return new_best, total, acc


@triton.jit
def add_sinks(total, best, sinks):
    """The sum [G] of a softmax whose maximum is best [G], to base 2, with the score of each head's sink [G]."""
    return total + tl.exp2(sinks.to(tl.float32) * _LOG2_E - best)


@triton.jit
def attend_block(q, keys, values, seen, is_masked, best, total, acc, scale, CAP: tl.constexpr, PRECISION: tl.constexpr):
    """q [M, D] to keys, values [N, D], where seen [M, N] if is_masked: the new maximum and sum [M], output [M, D].

    scale: that of the scores, times log2 e. CAP: a cap in the same unit; the scale is then twice the one of what tanh
    takes, times log2 e; 0: none. A query that has seen nothing yet has the maximum -inf and the sum 0.
    """
    scores = tl.dot(q, tl.trans(keys), input_precision=PRECISION)
    if CAP != 0:
        # tanh from exp(2 x), kept where it is a float: tanh is 1 long before. A NaN stays one.
        power = tl.exp2(tl.minimum(scores * scale, 64.0, propagate_nan=tl.PropagateNan.ALL))
        scores = CAP * ((power - 1) / (power + 1))
        scale = 1.0
    if is_masked:
        scores = tl.where(seen, scores, float("-inf"))
    new_best = tl.maximum(best, tl.max(scores, 1) * scale)
    shift = tl.where(new_best == float("-inf"), 0.0, new_best)
    shrink = tl.exp2(best - shift)
    weights = tl.exp2(scores * scale - shift[:, None])
    total = total * shrink + tl.sum(weights, 1)
    acc = tl.dot(weights.to(values.dtype), values, acc * shrink[:, None], input_precision=PRECISION)
    return new_best, total, acc
