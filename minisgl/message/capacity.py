"""What more memory would buy, or less cost."""

from __future__ import annotations

from minisgl.core import CAPACITY_FACTORS
from minisgl.message.stats import EngineStats


def hit_rates(stats: EngineStats) -> list[tuple[float, float | None]]:
    """(factor, share of the prompts' tokens that a KV pool so many times as large would have hit since the start).

    At factor 1 it is what was hit. None: nothing was looked up, or nobody counts.
    """
    hits, queried = stats.capacity_hits, stats.capacity_queried
    if not queried:
        return [(factor, None) for factor in CAPACITY_FACTORS]
    return [(factor, min(1.0, num_hit / queried)) for factor, num_hit in zip(CAPACITY_FACTORS, hits, strict=True)]
