"""Random numbers without state, and tokens drawn with them.

A draw depends on (seed, position, weights) and on nothing else: neither on batch mates nor on what was drawn before, so
a request that is retracted and computed again gets the same tokens. Shape letters: N rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from minisgl.engine.transfer import to_device

_MASK64 = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15  # 2^64 / golden ratio, odd: its multiples visit every 64-bit number
_BLOCK = 256
_BELOW_ONE = 1 - 2.0**-50


def _mix64(x: int) -> int:
    """Scramble 64 bits. Source: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) with Stafford's 13th mixer."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK64
    return x ^ (x >> 31)


def uniform(seed: int, position: int) -> float:
    """The number in [0, 1) that `seed` (any int64) has at `position`; a multiple of 2^-53."""
    start = _mix64((seed + _GOLDEN) & _MASK64)
    return float((_mix64((start + (position + 1) * _GOLDEN) & _MASK64) >> 11) * 2.0**-53)


def choice_seed(seed: int, index: int) -> int:
    """The int64 seed of choice `index` among n texts of one request. Choice 0 keeps the seed: n=1 is its first."""
    if index == 0:
        return seed
    mixed = _mix64((_mix64(seed & _MASK64) + index * _GOLDEN) & _MASK64)
    return mixed - 2**64 if mixed >= 2**63 else mixed


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
