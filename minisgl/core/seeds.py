"""Random numbers without state: a seed and a position give one, wherever and in whatever order it is asked for."""

from __future__ import annotations

_MASK64 = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15  # 2^64 / golden ratio, odd: its multiples visit every 64-bit number


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


def _mix64(x: int) -> int:
    """Scramble 64 bits. Source: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) with Stafford's 13th mixer."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK64
    return x ^ (x >> 31)
