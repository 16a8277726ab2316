"""How far off the estimate is of what pools of other sizes would hit: from one run, beside runs with such pools.

    python benchmarks/bench_capacity.py --traces DIR [--only tree] [--quick] [--jobs N] [--json FILE]

DIR holds mooncake_conv, cc_agent, fewshot and tau_airline as .jsonl or .jsonl.xz; those that are missing are left out.
The pool is a share of the trace's different pages, but holds the four largest requests. One run with it gives the
estimates for half of it, twice, four and eight times; then each of these is run. At the size itself the estimate is
what was measured, so that it does not count.

tree: requests one after another through the real radix tree, lru, without look-ahead, as the estimate takes it.
load 0.5, load 1: the real scheduler with its defaults, look-ahead too, and an H200's step times. The requests arrive as
dense as keeps the engine busy for half of its time, or all of it, first come, first served. A request of tau_airline
and cc_agent waits for the answer to the one before in its session. The traces are cut to their first requests: cc_agent
to 1,500, and with a clock all of them to some hundreds or thousands. Nothing is timed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from statistics import mean
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from minisgl.core import CAPACITY_FACTORS
from minisgl.kvcache.capacity_curve import AT_ONE
from minisgl.simulate.arrivals import Arrivals
from minisgl.simulate.belady import unique_pages
from minisgl.simulate.capacity import estimates, make_curve
from minisgl.simulate.config import SimulationConfig
from minisgl.simulate.load import arrival_scale, full_load_s
from minisgl.simulate.replay import replay
from minisgl.simulate.simulation import simulate
from minisgl.simulate.trace import read_trace
from minisgl.simulate.workload import Workload, make_workload

NAMES = ("tau_airline", "fewshot", "mooncake_conv", "cc_agent")
MODES = {"tree": None, "load 0.5": 0.5, "load 1": 1.0}
DIVISORS = (30, 10)
TREE_LIMITS = {"cc_agent": 1500}
CLOCK_LIMITS = {"tau_airline": 600, "fewshot": 3000, "mooncake_conv": 2000, "cc_agent": 500}
WITH_SESSIONS = ("cc_agent", "tau_airline")
QUICK_LIMIT = 300

Run = tuple[float, list[float]]  # the hit rate, and those estimated for CAPACITY_FACTORS


@dataclass(frozen=True)
class Case:
    """divisor: the pool is one page in so many of the trace's different ones."""

    path: Path
    mode: str
    divisor: int
    limit: int | None

    @property
    def name(self) -> str:
        return self.path.name.partition(".")[0]


def record_of(case: Case) -> dict[str, Any]:
    """Percent of the prompts' tokens, for each of CAPACITY_FACTORS. errors: estimated less measured."""
    load = MODES[case.mode]
    workload = make_workload(read_trace(case.path, case.limit), fill=load is not None)
    num_pages = max(4 * workload.longest, unique_pages(workload) // case.divisor)
    run = partial(tree, workload) if load is None else clock(workload, num_pages, load, case.name in WITH_SESSIONS)
    runs = [run(int(factor * num_pages)) for factor in CAPACITY_FACTORS]
    measured, estimated = [rate for rate, _ in runs], runs[AT_ONE][1]
    return {
        "trace": case.name,
        "mode": case.mode,
        "divisor": case.divisor,
        "num_pages": num_pages,
        "page_size": workload.page_size,
        "measured": [100 * rate for rate in measured],
        "errors": [100 * (guess - rate) for guess, rate in zip(estimated, measured, strict=True)],
    }


def tree(workload: Workload, num_pages: int) -> Run:
    curve = make_curve(workload, num_pages)
    counts = replay(workload, num_pages, curve=curve)
    return counts.hit_rate, [each["hit_rate"] for each in estimates(curve.hits, workload, counts)]


def clock(workload: Workload, num_pages: int, load: float, sessions: bool) -> Callable[[int], Run]:
    """Of a pool. The requests arrive as they would at this load with one of `num_pages`."""
    scale = arrival_scale(workload, full_load_s(workload, SimulationConfig(), num_pages), load)

    def run(pool: int) -> Run:
        arrivals = Arrivals(workload.items, scale, sessions=sessions)
        result = simulate(workload, SimulationConfig(), pool, arrivals)
        return result["hit_rate"], [each["hit_rate"] for each in result["capacity"]]

    return run


def cases(folder: Path, modes: Iterable[str], quick: bool) -> list[Case]:
    paths = [path for name in NAMES for path in sorted(folder.glob(f"{name}.jsonl*"))[:1]]
    if not paths:
        raise SystemExit(f"{folder}: none of {', '.join(NAMES)} is there as .jsonl or .jsonl.xz")
    found = []
    for path, mode, divisor in product(paths, modes, DIVISORS):
        limits = TREE_LIMITS if MODES[mode] is None else CLOCK_LIMITS
        found.append(Case(path, mode, divisor, QUICK_LIMIT if quick else limits.get(path.name.partition(".")[0])))
    return found


def off_by(record: dict[str, Any]) -> list[float]:
    """At the sizes that are estimated."""
    return [abs(error) for index, error in enumerate(record["errors"]) if index != AT_ONE]


def table_of(records: list[dict[str, Any]]) -> Table:
    title = "Hits measured, %, and in brackets how far off the estimate is, in points"
    table = Table("trace", "", "pool", *(f"{factor:g}x" for factor in CAPACITY_FACTORS), "mean", "worst", title=title)
    for record in records:
        cells = [
            f"{rate:.1f}" if index == AT_ONE else f"{rate:.1f} ({error:+.1f})"
            for index, (rate, error) in enumerate(zip(record["measured"], record["errors"], strict=True))
        ]
        off = off_by(record)
        pool = f"1/{record['divisor']}, {record['num_pages']:,} of {record['page_size']}"
        table.add_row(record["trace"], record["mode"], pool, *cells, f"{mean(off):.2f}", f"{max(off):.2f}")
    return table


def summary_of(records: list[dict[str, Any]]) -> Table:
    table = Table("trace", "", "mean", "worst", title="Points off, of all pools")
    groups: dict[tuple[str, str], list[float]] = {}
    for record in records:
        groups.setdefault((record["trace"], record["mode"]), []).extend(off_by(record))
    for (trace, mode), off in groups.items():
        table.add_row(trace, mode, f"{mean(off):.2f}", f"{max(off):.2f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, required=True, metavar="DIR")
    parser.add_argument("--only", choices=MODES, help="one part of it")
    parser.add_argument("--quick", action="store_true", help=f"the first {QUICK_LIMIT} requests of each trace")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every record to this file")
    args = parser.parse_args()
    found = cases(args.traces, [args.only] if args.only else MODES, args.quick)
    with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn")) as pool:
        results = pool.map(record_of, found)
        records = list(track(results, "pools", total=len(found), console=Console(stderr=True)))
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    console.print(table_of(records), summary_of(records))
    if args.json:
        args.json.write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    main()
