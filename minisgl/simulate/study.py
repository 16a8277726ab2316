"""A whole study of one trace: units, pool, replay or simulation, and the offline optimum beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from minisgl.simulate.arrivals import Arrivals
from minisgl.simulate.belady import best_hits, next_uses, unique_pages
from minisgl.simulate.capacity import estimates, make_curve
from minisgl.simulate.config import SimulationConfig
from minisgl.simulate.counts import HitCounts
from minisgl.simulate.load import arrival_scale, full_load_s
from minisgl.simulate.replay import check_pool, replay
from minisgl.simulate.simulation import simulate
from minisgl.simulate.trace import Trace
from minisgl.simulate.workload import Workload, make_workload
from minisgl.utils.math import div_ceil

Advance = Callable[[], None]
Begin = Callable[[str, int], Advance]  # what is being done, in how many parts; called after each of them
POOL_SHARE = 10  # the default pool is one part in so many of the trace's different pages


def begin_silently(stage: str, total: int) -> Advance:
    """Shows no progress."""
    return lambda: None


def study(trace: Trace, config: SimulationConfig, begin: Begin = begin_silently) -> dict[str, Any]:
    """What came of serving the trace, and what the best eviction could have hit, as plain values for JSON.

    The optimum sees the requests in the order of the trace, one after another. ValueError for a trace and options
    that do not fit together.
    """
    workload = make_workload(trace, config.page_size, expand=config.expand, fill=config.clock)
    num_unique = unique_pages(workload)
    num_pages = config.pages or max(workload.longest, div_ceil(num_unique, POOL_SHARE))
    check_pool(workload, num_pages)
    result = (
        _simulate(workload, config, num_pages, begin) if config.clock else _replay(workload, config, num_pages, begin)
    )
    optimum = best_hits(workload, num_pages, next_uses(workload, begin("optimum", len(workload.items))))
    return {
        "trace": trace.name,
        "licence": trace.licence,
        "page_size": workload.page_size,
        "num_pages": num_pages,
        "num_unique_pages": num_unique,
        "config": asdict(config) | {"lookahead": config.lookahead_width} | vars(config.step_times),
        "result": result,
        "optimum": _hits(optimum),
    }


def _simulate(workload: Workload, config: SimulationConfig, num_pages: int, begin: Begin) -> dict[str, Any]:
    scale = 1.0
    if config.load is not None:
        full_s = full_load_s(workload, config, num_pages, begin("full load", len(workload.items)))
        scale = arrival_scale(workload, full_s, config.load)
    arrivals = Arrivals(workload.items, scale, sessions=config.sessions)
    return simulate(workload, config, num_pages, arrivals, begin("simulating", len(workload.items)))


def _replay(workload: Workload, config: SimulationConfig, num_pages: int, begin: Begin) -> dict[str, Any]:
    progress = begin("replaying", len(workload.items))
    curve = make_curve(workload, num_pages)
    counts = replay(workload, num_pages, config.eviction, config.lookahead_width, progress, curve)
    return _hits(counts) | {"capacity": estimates(curve.hits, workload, counts)}


def _hits(counts: HitCounts) -> dict[str, Any]:
    return asdict(counts) | {"hit_rate": counts.hit_rate}
