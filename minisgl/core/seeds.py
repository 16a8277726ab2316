"""Random numbers without state: a seed and a position give one, wherever and in whatever order it is asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_MASK64 = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15  # 2^64 / golden ratio, odd: its multiples visit every 64-bit number


def uniform(seed: int, position: int) -> float:
    """The number in [0, 1) that `seed` (any int64) has at `position`; a multiple of 2^-53."""
    start = _mix64((seed + _GOLDEN) & _MASK64)
    return float((_mix64((start + (position + 1) * _GOLDEN) & _MASK64) >> 11) * 2.0**-53)


def streams(seeds: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """What `uniforms` wants of each seed, [N]: half the work, and the same at every position."""
    starts: npt.NDArray[np.uint64] = _mix64(seeds.astype(np.uint64) + np.uint64(_GOLDEN))
    return starts


def uniforms(starts: npt.NDArray[np.uint64], positions: npt.NDArray[np.integer]) -> npt.NDArray[np.float64]:
    """`uniform` of the seed of each of the `streams` at its position, all [N]."""
    mixed = _mix64(starts + (positions + 1).astype(np.uint64) * np.uint64(_GOLDEN))
    numbers: npt.NDArray[np.float64] = (mixed >> np.uint64(11)) * 2.0**-53
    return numbers


def choice_seed(seed: int, index: int) -> int:
    """The int64 seed of choice `index` among n texts of one request. Choice 0 keeps the seed: n=1 is its first."""
    if index == 0:
        return seed
    mixed: int = _mix64((_mix64(seed & _MASK64) + index * _GOLDEN) & _MASK64)
    return mixed - 2**64 if mixed >= 2**63 else mixed


def _mix64(x: Any) -> Any:
    """Scramble 64 bits: an int, or each number of a uint64 array.

    Source: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) with Stafford's 13th mixer.
    """
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK64
    return x ^ (x >> 31)
