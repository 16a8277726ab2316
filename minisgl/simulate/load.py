"""How dense arrivals must be so that the engine is busy for a given share of its time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from minisgl.simulate.arrivals import Arrivals
from minisgl.simulate.config import SimulationConfig
from minisgl.simulate.simulation import simulate
from minisgl.simulate.workload import Workload


def full_load_s(
    workload: Workload, config: SimulationConfig, num_pages: int, progress: Callable[[], None] = lambda: None
) -> float:
    """Seconds that the engine needs when it never waits: first come, first served, lru, no look-ahead.

    Over this time the requests arrive at load 1; over half of it, at load 2.
    """
    plain = replace(config, policy="fcfs", eviction="lru", lookahead=0)
    everybody = Arrivals(workload.items, scale=0.0)
    return float(simulate(workload, plain, num_pages, everybody, progress)["duration_s"])


def arrival_scale(workload: Workload, full_s: float, load: float) -> float:
    """Seconds between arrivals for a second of the trace, at this load. full_s: of `full_load_s`."""
    times = [item.request.arrival_s for item in workload.items]
    span = max(times) - min(times)
    return full_s / (load * span) if span else 1.0
