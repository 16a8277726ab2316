"""What pools of other sizes would hit, in a line for people."""

from __future__ import annotations

from collections.abc import Iterable


def other_pools(rates: Iterable[tuple[float, float | None]], digits: int = 1) -> str:
    """Such as "0.5x 12.5%, 2x 50.0%". rates: (factor, hit rate); 1 is left out, and what is not known."""
    return ", ".join(f"{factor:g}x {rate:.{digits}%}" for factor, rate in rates if factor != 1 and rate is not None)


def capacity_lines(rates: Iterable[tuple[float, float | None]]) -> list[str]:
    """One line; none where nothing was looked up or nobody counted."""
    others = other_pools(rates)
    return [f"hit_rate of other pools, estimated: {others}"] if others else []
