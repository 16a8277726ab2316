"""What eviction policies, look-ahead and queue order make of traces with real prefix structure.

    python benchmarks/bench_traces.py --traces DIR [--only hits|queue] [--quick] [--json FILE] [--plot FILE.png]

DIR holds mooncake_conv, cc_agent, fewshot and tau_airline as .jsonl or .jsonl.xz; those that are missing are left out.

Hits: requests one after another through the real radix tree, in pools of four sizes, shares of the trace's different
pages (but room for the largest request), for each policy, for lru with the next 64 and 256 requests expected, and for
the offline optimum. A page is a block, or 16 tokens where a block is one. "share" is how much of the distance between
lru and the optimum look-ahead closes.

Queue: the real scheduler, a clock and an H200's step times for a model of 8B, the pool a thirtieth. At load 1 the
requests arrive over the time that the engine needs for all of them, first come, first served; at load 1.5 over two
thirds of it. A request of tau_airline and cc_agent waits for the answer to the one before in its session. cc_agent is
cut to its first 3,000 requests, mooncake_conv to 6,000. All is computed from the trace alone: nothing is timed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from trace_tables import hit_table, queue_table

from minisgl.kvcache.eviction import EVICTION_POLICIES
from minisgl.simulate.arrivals import Arrivals
from minisgl.simulate.belady import Uses, best_hits, next_uses, unique_pages
from minisgl.simulate.config import SimulationConfig
from minisgl.simulate.load import arrival_scale, full_load_s
from minisgl.simulate.replay import replay
from minisgl.simulate.simulation import simulate
from minisgl.simulate.trace import read_trace
from minisgl.simulate.workload import PAGE_OF_TOKENS, Workload, make_workload

NAMES = ("mooncake_conv", "cc_agent", "fewshot", "tau_airline")
DIVISORS = (100, 30, 10, 3)
LOOKAHEADS = (64, 256)
LOADS = (1.0, 1.5)
QUEUE_DIVISOR = 30
QUEUE_LIMITS = {"cc_agent": 3000, "mooncake_conv": 6000}
WITH_SESSIONS = ("cc_agent", "tau_airline")
ORDERS = {"fcfs": ("fcfs", 0), "lpm": ("lpm", 0), "fcfs + look-ahead": ("fcfs", 256), "lpm + look-ahead": ("lpm", 256)}
QUICK_LIMIT = 300


@dataclass(frozen=True)
class Case:
    """kind: "hits" or "queue". divisor: the pool is one page in so many of the trace's different ones."""

    kind: str
    path: Path
    divisor: int
    limit: int | None

    @property
    def name(self) -> str:
        return self.path.name.partition(".")[0]


@lru_cache(maxsize=1)
def prepared(path: Path, limit: int | None) -> tuple[Workload, int, list[Uses]]:
    """The trace in units, its different pages, and their next uses; the cases of one trace follow one another."""
    trace = read_trace(path, limit)
    workload = make_workload(trace, PAGE_OF_TOKENS if trace.block_size == 1 else trace.block_size)
    return workload, unique_pages(workload), next_uses(workload)


def hits(case: Case) -> Iterator[dict[str, Any]]:
    """A record for each policy: lru first, the optimum last."""
    workload, num_unique, uses = prepared(case.path, case.limit)
    num_pages = max(workload.longest, num_unique // case.divisor)
    place = {"trace": case.name, "divisor": case.divisor, "num_pages": num_pages, "page_size": workload.page_size}
    for eviction in [name for name in EVICTION_POLICIES.names if name != "priority"]:  # traces have no priorities
        yield place | {"policy": eviction, "hit_rate": replay(workload, num_pages, eviction).hit_rate}
    for lookahead in LOOKAHEADS:
        counts = replay(workload, num_pages, lookahead=lookahead)
        yield place | {"policy": f"look-ahead {lookahead}", "hit_rate": counts.hit_rate}
    yield place | {"policy": "optimum", "hit_rate": best_hits(workload, num_pages, uses).hit_rate}


def queue(case: Case) -> Iterator[dict[str, Any]]:
    """A record for each load and order."""
    workload = make_workload(read_trace(case.path, case.limit), fill=True)
    num_pages = max(workload.longest, unique_pages(workload) // case.divisor)
    full_s = full_load_s(workload, SimulationConfig(), num_pages)
    sessions = case.name in WITH_SESSIONS
    for load, (order, (policy, lookahead)) in product(LOADS, ORDERS.items()):
        arrivals = Arrivals(workload.items, arrival_scale(workload, full_s, load), sessions=sessions)
        config = SimulationConfig(policy=policy, lookahead=lookahead)
        result = simulate(workload, config, num_pages, arrivals)
        yield {"trace": case.name, "load": load, "order": order, "num_pages": num_pages, "full_load_s": full_s} | result


def records_of(case: Case) -> list[dict[str, Any]]:
    return list((hits if case.kind == "hits" else queue)(case))


def cases(folder: Path, kinds: Iterable[str], quick: bool) -> list[Case]:
    paths = [path for name in NAMES for path in sorted(folder.glob(f"{name}.jsonl*"))[:1]]
    if not paths:
        raise SystemExit(f"{folder}: none of {', '.join(NAMES)} is there as .jsonl or .jsonl.xz")
    found = []
    for kind, path in product(kinds, paths):
        whole = None if kind == "hits" else QUEUE_LIMITS.get(path.name.partition(".")[0])
        for divisor in DIVISORS if kind == "hits" else (QUEUE_DIVISOR,):
            found.append(Case(kind, path, divisor, QUICK_LIMIT if quick else whole))
    return found


def run_all(found: list[Case], num_jobs: int) -> list[tuple[Case, list[dict[str, Any]]]]:
    with ProcessPoolExecutor(num_jobs, mp_context=get_context("spawn")) as pool:
        results = pool.map(records_of, found)
        return list(zip(found, track(results, "traces", total=len(found), console=Console(stderr=True)), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, required=True, metavar="DIR")
    parser.add_argument("--only", choices=("hits", "queue"), help="one half of it")
    parser.add_argument("--quick", action="store_true", help=f"the first {QUICK_LIMIT} requests of each trace")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every record to this file")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE.png", help="draw the hits; wants matplotlib, in the extra `bench`"
    )
    args = parser.parse_args()
    done = run_all(cases(args.traces, [args.only] if args.only else ["hits", "queue"], args.quick), args.jobs)
    tables = {kind: [r for case, records in done if case.kind == kind for r in records] for kind in ("hits", "queue")}
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 180)
    for make, kind in ((hit_table, "hits"), (queue_table, "queue")):
        if tables[kind]:
            console.print(make(tables[kind]))
    if args.json:
        args.json.write_text(json.dumps(tables, indent=1) + "\n")
    if args.plot and tables["hits"]:
        from trace_plot import plot_hits

        plot_hits(tables["hits"], args.plot)


if __name__ == "__main__":
    main()
