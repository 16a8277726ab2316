"""What pools of other sizes would hit, in a line for people."""

from __future__ import annotations

from collections.abc import Iterable


def capacity_lines(rates: Iterable[tuple[float, float | None]]) -> list[str]:
    """One line; none where nothing was looked up or nobody counted. rates: (factor, hit rate); 1 is left out."""
    others = [f"{factor:g}x {rate:.1%}" for factor, rate in rates if factor != 1 and rate is not None]
    return [f"hit_rate of other pools, estimated: {', '.join(others)}"] if others else []
