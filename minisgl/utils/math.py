"""Whole-number arithmetic on sizes."""

from __future__ import annotations


def div_ceil(a: int, b: int) -> int:
    """The smallest whole number >= a / b."""
    return -(-a // b)


def align_down(a: int, b: int) -> int:
    """The largest multiple of b that is <= a."""
    return a // b * b
