"""What both ways of drawing a token share, inside the kernels of `sampling`."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def load_blocks(row_logits, blocks, there, vocab_size, BLOCK: tl.constexpr):
    """[len(blocks), BLOCK] float32 logits of these blocks; -inf beyond the vocabulary and where `there` is false."""
    ids = blocks[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    mask = there[:, None] & (ids < vocab_size)
    return tl.load(row_logits + ids, mask=mask, other=float("-inf")).to(tl.float32)


@triton.jit
def first_above(weights, target):
    """Where the running sum of weights first passes `target` (float64), and what of the target is left there.

    A place of weight 0 is never the answer, unless all are.
    """
    places = tl.arange(0, weights.shape[0])
    exact = weights.to(tl.float64)
    sums = tl.cumsum(exact, axis=0)
    target = tl.minimum(target, tl.max(sums, axis=0) * (1 - 2.0**-50))
    place = tl.min(tl.where((sums > target) & (weights > 0), places, weights.shape[0] - 1), axis=0)
    before = tl.sum(tl.where(places == place, sums - exact, 0.0), axis=0)
    return place, tl.maximum(target - before, 0.0)


@triton.jit
def draw_in_block(block, weights, target, BLOCK: tl.constexpr):
    """The id of the token of `block` at which the running sum of its weights passes `target`."""
    place, _ = first_above(weights, target)
    return block * BLOCK + place
