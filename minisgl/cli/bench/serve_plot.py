"""The picture of `bench serve`: how long first tokens and gaps took, and how much came over time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from minisgl.cli.bench.load import Result
from minisgl.cli.plot import Panel, distribution, rates


def panels(results: Sequence[Result]) -> list[Panel]:
    """results: at least one went well; of the others nothing is shown."""
    good = [result for result in results if result.error is None]
    begin = min(result.sent_s for result in good)
    times = {
        "first token": [1e3 * result.first_token_s for result in good],
        "whole request": [1e3 * result.total_s for result in good],
    }
    gaps = [1e3 * gap for result in good for gap in result.gaps_s if gap > 0]
    arrivals = sorted(at - begin for result in good for at in arrivals_of(result))
    done = {"pieces": (arrivals, [1.0] * len(arrivals))}
    end_s = max(result.sent_s + result.total_s for result in good) - begin
    return [
        distribution("requests", "ms from the sending", times),
        distribution("between pieces of text", "ms", {"gap": gaps}),
        rates("throughput over time", "pieces of text a second", done, end_s),
    ]


def arrivals_of(result: Result) -> list[float]:
    """When each piece of text came, by the clock of `sent_s`."""
    return list(accumulate(result.gaps_s, initial=result.sent_s + result.first_token_s))
