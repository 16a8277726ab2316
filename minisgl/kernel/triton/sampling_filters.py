"""A token drawn from what top_k, top_p and min_p leave of a row, with the meaning that `engine.filters` gives them.

Both top_k and top_p keep what is not below a border: the least logit that has less than so many tokens, or less than
so much mass, above it. Logits of a dtype have an order of integer keys, and the border is searched among these, three
keys a pass over the blocks that can still hold it: at most 8 passes for bfloat16, 16 for float32, and far fewer blocks
than the row has, for all but flat distributions. Sums run in a fixed order, so batch mates do not matter.
"""

from __future__ import annotations

import triton
import triton.language as tl

from minisgl.kernel.triton.sampling_parts import draw_in_block, first_above, load_blocks


@triton.jit
def draw_filtered(
    row_logits, kept_blocks, kept_sums, kept_ties,
    best_of_block, masses, best, scale, uniform, top_k, top_p, min_p,
    vocab_size, num_blocks, BLOCK: tl.constexpr, TILE: tl.constexpr, SHIFT: tl.constexpr,
):  # fmt: skip
    """The token of one row.

    kept_blocks (int32), kept_sums, kept_ties (float32): memory of this row, one value a block. best_of_block, masses:
    of each block, its best logit, and its mass relative to `best`. scale: log2(e) / temperature. SHIFT: bits of a
    float32 that the logits' dtype does not have.
    """
    border = float("-inf")
    num_ties = 2.0**30  # of the tokens at the border, this many stay: those of the lowest ids
    if top_k > 0:
        low = _key(_kth_best(best_of_block, best, top_k, SHIFT), SHIFT) - 1
        border, _ = _border(
            row_logits, kept_blocks, best_of_block, best, scale, top_k, low, vocab_size, BLOCK, TILE, SHIFT, True
        )  # fmt: skip
    if top_p < 1:
        total = tl.sum(masses.to(tl.float64), axis=0)
        # What is lower than this has less than 1 - top_p of the mass, even if all tokens were there.
        share = ((1 - top_p) * total / vocab_size).to(tl.float32) * 0.99
        low = _key(best + tl.log2(share) / scale, SHIFT) - 1
        if top_k > 0:
            low = _key(border, SHIFT) - 1
            num_kept = _keep_blocks(kept_blocks, best_of_block >= border)
            total, _, _ = _above(
                row_logits, kept_blocks, num_kept, _value(low, SHIFT), best, best, best, scale, vocab_size,
                BLOCK, TILE, False,
            )  # fmt: skip
        target = top_p * total
        border, above = _border(
            row_logits, kept_blocks, best_of_block, best, scale, target, low, vocab_size, BLOCK, TILE, SHIFT, False
        )  # fmt: skip
        num_ties = _ties_within(target - above, tl.exp2((border - best) * scale))
    if min_p > 0:
        least = best + (tl.log2(min_p.to(tl.float32)) / scale)
        num_ties = tl.where(least > border, 2.0**30, num_ties)
        border = tl.maximum(least, border)
    return _draw_above(
        row_logits, kept_blocks, kept_sums, kept_ties, best_of_block, best, scale, uniform, border, num_ties,
        vocab_size, num_blocks, BLOCK, TILE,
    )  # fmt: skip


@triton.jit
def _ties_within(mass, weight):
    """How many tokens of one weight it takes to reach a mass, at least one."""
    ties = tl.where(weight > 0, tl.ceil(mass / weight.to(tl.float64)), 1.0)
    return tl.minimum(tl.maximum(ties, 1.0), 2.0**30).to(tl.float32)


@triton.jit
def _key(value, SHIFT: tl.constexpr):
    """The integer key of a float32: in the order of the values; of one between two of the dtype, the lower's."""
    bits = value.to(tl.int32, bitcast=True)
    bits = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return (bits >> SHIFT).to(tl.int64)


@triton.jit
def _value(key, SHIFT: tl.constexpr):
    bits = key.to(tl.int32) << SHIFT
    bits = tl.where(bits < 0, (bits | ((1 << SHIFT) - 1)) ^ 0x7FFFFFFF, bits)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def _kth_best(best_of_block, best, k, SHIFT: tl.constexpr):
    """The k-th best of the blocks' best logits: the row's k-th best is no lower. -inf if there are fewer blocks."""
    low, high = _key(best * 0 - float("inf"), SHIFT), _key(best, SHIFT)
    while high - low > 1:
        middle = (low + high) // 2
        above = tl.sum((best_of_block > _value(middle, SHIFT)).to(tl.int32), axis=0)
        high = tl.where(above < k, middle, high)
        low = tl.where(above < k, low, middle)
    found = tl.sum((best_of_block >= _value(high, SHIFT)).to(tl.int32), axis=0) >= k
    return tl.where(found, _value(high, SHIFT), float("-inf"))


@triton.jit
def _keep_blocks(kept_blocks, keep):
    """Write the numbers of the blocks to keep, ascending; returns how many."""
    places = tl.cumsum(keep.to(tl.int32), axis=0) - 1
    tl.debug_barrier()  # all have read what stood there
    tl.store(kept_blocks + places, tl.arange(0, keep.shape[0]), mask=keep)
    tl.debug_barrier()
    return tl.sum(keep.to(tl.int32), axis=0)


@triton.jit
def _border(
    row_logits, kept_blocks, best_of_block, best, scale, target, low, vocab_size,
    BLOCK: tl.constexpr, TILE: tl.constexpr, SHIFT: tl.constexpr, COUNT: tl.constexpr,
):  # fmt: skip
    """The least logit with less than `target` above it, tokens (COUNT) or mass, and how much that is.

    low: a key that is below the border's.
    """
    low = tl.maximum(low, _key(best * 0 - float("inf"), SHIFT))
    high = _key(best, SHIFT)
    above = target * 0
    while high - low > 1:
        quarter = tl.maximum((high - low) // 4, 1)
        key_1, key_2, key_3 = low + quarter, (low + high) // 2, high - quarter
        num_kept = _keep_blocks(kept_blocks, best_of_block > _value(low, SHIFT))
        above_1, above_2, above_3 = _above(
            row_logits, kept_blocks, num_kept, _value(key_1, SHIFT), _value(key_2, SHIFT), _value(key_3, SHIFT),
            best, scale, vocab_size, BLOCK, TILE, COUNT,
        )  # fmt: skip
        in_1, in_2, in_3 = above_1 < target, above_2 < target, above_3 < target
        above = tl.where(in_1, above_1, tl.where(in_2, above_2, tl.where(in_3, above_3, above)))
        high = tl.where(in_1, key_1, tl.where(in_2, key_2, tl.where(in_3, key_3, high)))
        low = tl.where(in_1, low, tl.where(in_2, key_1, tl.where(in_3, key_2, key_3)))
    return _value(high, SHIFT), above


@triton.jit
def _above(
    row_logits, kept_blocks, num_kept, value_1, value_2, value_3, best, scale, vocab_size,
    BLOCK: tl.constexpr, TILE: tl.constexpr, COUNT: tl.constexpr,
):  # fmt: skip
    """How many tokens (COUNT), or how much mass, lies above each of three values in the kept blocks. Each float64."""
    sums_1, sums_2, sums_3 = tl.zeros([TILE], tl.float32), tl.zeros([TILE], tl.float32), tl.zeros([TILE], tl.float32)
    start = 0
    while start < num_kept:
        places = start + tl.arange(0, TILE)
        start += TILE
        there = places < num_kept
        x = load_blocks(row_logits, tl.load(kept_blocks + places, mask=there, other=0), there, vocab_size, BLOCK)
        weights = tl.full(x.shape, 1.0, tl.float32) if COUNT else tl.exp2((x - best) * scale)
        sums_1 += tl.sum(tl.where(x > value_1, weights, 0.0), axis=1)
        sums_2 += tl.sum(tl.where(x > value_2, weights, 0.0), axis=1)
        sums_3 += tl.sum(tl.where(x > value_3, weights, 0.0), axis=1)
    return (
        tl.sum(sums_1.to(tl.float64), axis=0),
        tl.sum(sums_2.to(tl.float64), axis=0),
        tl.sum(sums_3.to(tl.float64), axis=0),
    )


@triton.jit
def _draw_above(
    row_logits, kept_blocks, kept_sums, kept_ties, best_of_block, best, scale, uniform, border, num_ties,
    vocab_size, num_blocks, BLOCK: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """A token among those above the border and the first `num_ties` at it."""
    num_kept = _keep_blocks(kept_blocks, best_of_block >= border)
    start = 0
    while start < num_kept:
        places = start + tl.arange(0, TILE)
        start += TILE
        there = places < num_kept
        x = load_blocks(row_logits, tl.load(kept_blocks + places, mask=there, other=0), there, vocab_size, BLOCK)
        weights = tl.exp2((x - best) * scale)
        tl.store(kept_sums + places, tl.sum(tl.where(x > border, weights, 0.0), axis=1), mask=there)
        tl.store(kept_ties + places, tl.sum((x == border).to(tl.float32), axis=1), mask=there)
    tl.debug_barrier()
    places = tl.arange(0, best_of_block.shape[0])
    ties = tl.load(kept_ties + places, mask=places < num_kept, other=0.0)
    ties_before = tl.cumsum(ties, axis=0) - ties
    stay = tl.minimum(tl.maximum(num_ties - ties_before, 0.0), ties)
    masses = tl.load(kept_sums + places, mask=places < num_kept, other=0.0) + stay * tl.exp2((border - best) * scale)
    place, target = first_above(masses, uniform * tl.sum(masses.to(tl.float64), axis=0))
    block = tl.load(kept_blocks + tl.minimum(place, num_kept - 1))
    ids = block * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(row_logits + ids, mask=ids < vocab_size, other=float("-inf")).to(tl.float32)
    at_border = (x == border).to(tl.float32)
    rank = tl.cumsum(at_border, axis=0) - at_border + tl.sum(tl.where(places == place, ties_before, 0.0), axis=0)
    keep = (x > border) | ((x == border) & (rank < num_ties))
    return draw_in_block(block, tl.where(keep, tl.exp2((x - best) * scale), 0.0), target, BLOCK)
