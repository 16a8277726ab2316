"""What a run showed: percentiles, rates, errors; as a table for people and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.table import Table

from minisgl.cli.bench.load import Result

PERCENTILES = (50, 90, 99)
ROWS = {
    "time to first token, ms": "ttft_ms",
    "between pieces of text, ms": "inter_token_ms",
    "a token after the first, ms": "per_token_ms",
    "whole request, ms": "e2e_ms",
    "sent later than planned, ms": "late_ms",
}


@dataclass(frozen=True)
class Clock:
    """Seconds of the whole run, and how much CPU time of them this client took."""

    wall_s: float
    cpu_s: float


def summarize(results: Sequence[Result], clock: Clock) -> dict[str, Any]:
    """Times are of the requests that went well, tokens too; every other one is counted under its error."""
    good = [result for result in results if result.error is None]
    prompt_tokens = sum(result.prompt_tokens for result in good)
    output_tokens = sum(result.output_tokens for result in good)
    cached_tokens = sum(result.cached_tokens for result in good)
    return {
        "num_requests": len(results),
        "num_failed": len(results) - len(good),
        "errors": dict(Counter(result.error for result in results if result.error is not None).most_common()),
        "wall_s": clock.wall_s,
        "client_cpu_share": clock.cpu_s / clock.wall_s,
        "requests_per_s": len(good) / clock.wall_s,
        "output_tokens_per_s": output_tokens / clock.wall_s,
        "total_tokens_per_s": (prompt_tokens + output_tokens) / clock.wall_s,
        "prompt_tokens": prompt_tokens,
        "output_tokens": output_tokens,
        "cached_tokens": cached_tokens,
        "cached_share": cached_tokens / prompt_tokens if prompt_tokens else 0.0,
        "ttft_ms": _spread([result.first_token_s for result in good]),
        "inter_token_ms": _spread([gap for result in good for gap in result.gaps_s]),
        "per_token_ms": _spread([sum(r.gaps_s) / (r.output_tokens - 1) for r in good if r.output_tokens > 1]),
        "e2e_ms": _spread([result.total_s for result in good]),
        "late_ms": _spread([result.late_s for result in good]),
    }


def table(summary: dict[str, Any], title: str) -> Table:
    """Milliseconds, one line a quantity; lateness only where there was some."""
    out = Table("", "mean", *(f"p{percent}" for percent in PERCENTILES), "max", title=title, title_justify="left")
    for label, key in ROWS.items():
        spread = summary[key]
        if key == "late_ms" and not (spread and spread["max"]):
            continue
        out.add_row(label, *(f"{value:,.1f}" for value in spread.values()) if spread else "-")
    return out


def lines(summary: dict[str, Any]) -> list[str]:
    """What is no distribution."""
    good = summary["num_requests"] - summary["num_failed"]
    texts = [
        f"{good} of {summary['num_requests']} requests in {summary['wall_s']:.2f} s, "
        f"{summary['requests_per_s']:.2f} a second",
        f"{summary['output_tokens_per_s']:,.1f} generated tokens a second, "
        f"{summary['total_tokens_per_s']:,.1f} with those of the prompts",
        f"{summary['prompt_tokens']:,} prompt tokens, {summary['cached_share']:.1%} of them cached; "
        f"{summary['output_tokens']:,} generated",
        f"the client took {summary['client_cpu_share']:.1%} of a core",
    ]
    return texts + [f"failed {count} times: {error}" for error, count in summary["errors"].items()]


def _spread(seconds: Sequence[float]) -> dict[str, float] | None:
    """Mean, percentiles and maximum, in milliseconds; None of nothing."""
    if not seconds:
        return None
    values = np.asarray(seconds) * 1e3
    percentiles = {f"p{percent}": float(np.percentile(values, percent)) for percent in PERCENTILES}
    return {"mean": float(values.mean()), **percentiles, "max": float(values.max())}
