"""The records of bench_traces.py as tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.table import Table

Records = list[dict[str, Any]]
Rates = dict[str, float]


def by_pool(records: Records) -> dict[tuple[str, int], Rates]:
    """Hit rates by policy, for each (trace, divisor)."""
    pools: dict[tuple[str, int], Rates] = {}
    for record in records:
        pools.setdefault((record["trace"], record["divisor"]), {})[record["policy"]] = record["hit_rate"]
    return pools


def closed_share(rates: Rates, policy: str) -> float | None:
    """How much of the distance between lru and the optimum `policy` closes; None where there is next to none."""
    distance = rates["optimum"] - rates["lru"]
    return (rates[policy] - rates["lru"]) / distance if distance > 1e-3 else None


def hit_table(records: Records) -> Table:
    """Percent of the prompts' tokens, and shares of the way from lru to the optimum."""
    pools = by_pool(records)
    policies = list(dict.fromkeys(record["policy"] for record in records))
    ahead = [policy for policy in policies if policy.startswith("look-ahead")]
    first = ["lru", "optimum", *ahead]
    others = [policy for policy in policies if policy not in first]
    shares = [policy.replace("look-ahead", "share") for policy in ahead]
    table = _table("Token hit rates, %", ["trace", "pool"], [*first, *shares, *others])
    for (trace, divisor), rates in pools.items():
        closed = [closed_share(rates, policy) for policy in ahead]
        cells = [
            *_percents(rates[name] for name in first),
            *_percents(closed),
            *_percents(rates[name] for name in others),
        ]
        table.add_row(trace, f"1/{divisor}", *cells)
    means = [[s for rates in pools.values() if (s := closed_share(rates, policy)) is not None] for policy in ahead]
    blanks = [""] * len(first)
    table.add_row("mean", "", *blanks, *_percents(sum(m) / len(m) if m else None for m in means), *[""] * len(others))
    return table


def queue_table(records: Records) -> Table:
    """Seconds on the virtual clock."""
    columns = ["hits %", "wait mean", "wait p99", "TTFT mean", "TTFT p99", "requests/s", "evicted pages", "retracted"]
    table = _table("The queue, waits in seconds", ["trace", "load", "order"], columns)
    for r in records:
        times = [r["wait_s"]["mean"], r["wait_s"]["p99"], r["ttft_s"]["mean"], r["ttft_s"]["p99"], r["requests_per_s"]]
        counts = [f"{r['num_evicted_pages']:,}", f"{r['num_retracted']:,}"]
        cells = [*_percents([r["hit_rate"]]), *(f"{value:,.2f}" for value in times), *counts]
        table.add_row(r["trace"], str(r["load"]), r["order"], *cells)
    return table


def _table(title: str, names: list[str], numbers: list[str]) -> Table:
    table = Table(title=title, title_justify="left")
    for name in names:
        table.add_column(name)
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def _percents(values: Iterable[float | None]) -> list[str]:
    return ["-" if value is None else f"{100 * value:.1f}" for value in values]
