"""Tokens drawn with the numbers of `core.seeds`.

A draw depends on (seed, position, weights) and on nothing else: neither on batch mates nor on what was drawn before, so
a request that is retracted and computed again gets the same tokens. Shape letters: N rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from minisgl.engine.transfer import to_device

_BLOCK = 256
_BELOW_ONE = 1 - 2.0**-50


def draw(weights: torch.Tensor, uniforms: Sequence[float]) -> torch.Tensor:
    """[N] int64 tokens, row by row in proportion to `weights` [N, V] float32 >= 0: inverse CDF in order of id.

    A token of weight 0 is never drawn. A row with NaN, or without any weight, gives some token in range.
    Sums of blocks are searched first, then one block: one pass over the weights and no [N, V] cumulative sum.
    """
    sums, last = block_sums(weights), weights.shape[-1] - 1
    target = to_device(uniforms, torch.float64, weights.device) * sums.double().sum(dim=-1)
    block, target = _first_above(sums, target)
    ids = block[:, None] * _BLOCK + torch.arange(_BLOCK, device=weights.device)
    inside = weights.gather(-1, ids.clamp(max=last)).masked_fill_(ids > last, 0)
    return (block * _BLOCK + _first_above(inside, target)[0]).clamp_(max=last)


def block_sums(weights: torch.Tensor) -> torch.Tensor:
    """[N, ceil(V / 256)] sums of 256 neighbours of `weights` [N, V] each; a row's never depend on the other rows.

    (The sum of a whole row might: when it is the only one, torch splits it between threads.)
    """
    cut = weights.shape[-1] // _BLOCK * _BLOCK
    blocks = weights[:, :cut].view(len(weights), cut // _BLOCK, _BLOCK)
    return torch.cat([blocks.sum(dim=-1), weights[:, cut:].sum(dim=-1, keepdim=True)], dim=-1)


def _first_above(weights: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Where the running sum of weights [N, K] first passes `target` [N], and what of the target is left there."""
    sums = weights.double().cumsum(dim=-1)
    target = torch.minimum(target, sums[:, -1] * _BELOW_ONE)[:, None]
    index = ((sums > target) & (weights > 0)).to(torch.int8).argmax(dim=-1, keepdim=True)
    left = target - (sums - weights).gather(-1, index)
    return index[:, 0], left[:, 0].clamp_(min=0)
