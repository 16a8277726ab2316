"""How long the scheduler takes for a step with many waiting, and how soon lpm serves a request that nobody shares.

    python benchmarks/bench_scheduler.py [POLICY ...] [--waiting 100,10000] [--steps 2000] [--json FILE]

A step is plan + commit; the engine between them answers at once. CPU time of one thread in microseconds. 64 requests
run; whoever is admitted is replaced by a new arrival, so the queue keeps its length. shared: 300-token prompts behind
one of 100 prefixes of 1,000 tokens, popular ones more often (Zipf). random: 100-700 tokens in common with nobody. The
pool holds a twentieth of what waits, so that every step evicts.
"""

from __future__ import annotations

import argparse
import gc
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import count, product
from multiprocessing import get_context
from pathlib import Path
from statistics import median

import numpy as np
from rich.console import Console
from rich.table import Table
from stopwatch import Stopwatch, machine

from minisgl.core import Batch, BatchResult, Limits, SamplingParams
from minisgl.message import UserMsg
from minisgl.scheduler.cache_manager import CacheManager
from minisgl.scheduler.ordering import POLICIES
from minisgl.scheduler.scheduler import Scheduler
from minisgl.utils.arrays import Int32Array

VOCABULARY = 150_000
PAGE_SIZE, NUM_PAGES, NUM_ROWS, MAX_SEQ_LEN, BUDGET = 16, 20_000, 64, 4096, 2048
MAX_OVERTAKES, LOOKAHEAD = 64, 256
WARM_UP = 200  # steps that are not measured

Prompts = Iterator[Int32Array]


def random_prompts(rng: np.random.Generator) -> Prompts:
    while True:
        yield rng.integers(3, VOCABULARY, rng.integers(100, 700), np.int32)


def shared_prompts(rng: np.random.Generator) -> Prompts:
    prefixes = rng.integers(3, VOCABULARY, (100, 1000), np.int32)
    weights = 1 / np.arange(1, 101)
    while True:
        which = rng.choice(100, p=weights / weights.sum())
        yield np.concatenate([prefixes[which], rng.integers(3, VOCABULARY, 300, np.int32)])


WORKLOADS: dict[str, Callable[[np.random.Generator], Prompts]] = {"shared": shared_prompts, "random": random_prompts}


class Bench:
    """A scheduler, and an engine whose every token is 3."""

    def __init__(
        self, policy: str, lookahead: int, prompts: Prompts, num_waiting: int = 0, ghost_tokens: int | None = None
    ) -> None:
        manager = CacheManager(NUM_PAGES, PAGE_SIZE, NUM_ROWS, MAX_SEQ_LEN, "radix", ghost_tokens=ghost_tokens)
        limits = Limits(VOCABULARY, MAX_SEQ_LEN, NUM_PAGES * PAGE_SIZE)
        self.scheduler = Scheduler(
            manager, limits, BUDGET, policy=policy, max_overtakes=MAX_OVERTAKES, lookahead=lookahead
        )
        self.prompts = prompts
        self.num_waiting = num_waiting
        self.uids = count()
        self.plans, self.commits, self.arrivals = Stopwatch(), Stopwatch(), Stopwatch()

    def arrive(self, prompt: Int32Array | None = None, max_tokens: int = 32) -> int:
        uid = next(self.uids)
        ids = next(self.prompts) if prompt is None else prompt
        params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
        self.arrivals(self.scheduler.receive, [UserMsg(uid, ids, params, seed=uid)])
        return uid

    def step(self) -> Batch | None:
        batch = self.plans(self.scheduler.plan)
        if batch is None:
            self.commits.times.append(0.0)
        else:
            tokens = np.array([3 if req.samples else -1 for req in batch.reqs], np.int32)
            self.commits(self.scheduler.commit, batch, BatchResult(tokens))
        self.scheduler.take_replies()
        return batch

    def fill(self) -> None:
        while self.scheduler.stats().num_waiting < self.num_waiting:
            self.arrive()

    def forget_times(self) -> None:
        for watch in (self.plans, self.commits, self.arrivals):
            watch.times.clear()

    def row(self, workload: str, policy: str, lookahead: int) -> Row:
        steps, stats = np.add(self.plans.times, self.commits.times), self.scheduler.stats()
        return Row(
            self.num_waiting,
            workload,
            policy,
            lookahead,
            median=float(np.median(steps)),
            p99=float(np.percentile(steps, 99)),
            max=float(steps.max()),
            plan=median(self.plans.times),
            arrival=median(self.arrivals.times),
            hit_rate=stats.hit_tokens / stats.queried_tokens,
        )


@dataclass(frozen=True)
class Row:
    """Microseconds. plan: the median of that part of a step. arrival: the median of taking a request in."""

    waiting: int
    workload: str
    policy: str
    lookahead: int
    median: float
    p99: float
    max: float
    plan: float
    arrival: float
    hit_rate: float


def measure_steps(workload: str, policy: str, lookahead: int, lengths: list[int], num_steps: int) -> list[Row]:
    """Queues of all `lengths` take turns in one process, so that a neighbour on the machine slows all of them."""
    benches = {
        length: Bench(policy, lookahead, WORKLOADS[workload](np.random.default_rng(0)), length) for length in lengths
    }
    for bench in benches.values():
        bench.fill()
    gc.collect()
    gc.freeze()
    for step in range(-WARM_UP, num_steps):
        for bench in benches.values():
            if step == 0:
                bench.forget_times()
            bench.step()
            bench.fill()
    return [bench.row(workload, policy, lookahead) for bench in benches.values()]


def admissions_before_the_cold(policy: str, num_hot: int = 1000) -> int:
    """How many of `num_hot` requests with a cached prefix, all of which came later, run before one without."""
    rng = np.random.default_rng(0)
    hot = rng.integers(3, VOCABULARY, 1000, np.int32)
    bench = Bench(policy, LOOKAHEAD, random_prompts(rng))
    bench.arrive(hot, max_tokens=1)
    while bench.scheduler.has_work:
        bench.step()
    cold = bench.arrive(rng.integers(3, VOCABULARY, 1000, np.int32), max_tokens=2)
    for _ in range(num_hot):
        bench.arrive(np.concatenate([hot, rng.integers(3, VOCABULARY, 20, np.int32)]), max_tokens=2)
    admitted: dict[int, None] = {}
    while cold not in admitted:
        batch = bench.step()
        assert batch is not None
        admitted |= dict.fromkeys(req.uid for req in batch.reqs if req.is_prefill)
    return list(admitted).index(cold)


def print_table(rows: list[Row]) -> None:
    table = Table("waiting", "prompts", "policy", "look-ahead", "median", "p99", "max", "plan", "arrival", "hits")
    for row in rows:
        figures = (f"{figure:,.0f}" for figure in (row.median, row.p99, row.max, row.plan, row.arrival))
        table.add_row(f"{row.waiting:,}", row.workload, row.policy, str(row.lookahead), *figures, f"{row.hit_rate:.0%}")
    Console(width=110).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policies", nargs="*", metavar="POLICY", help=f"of {', '.join(POLICIES.names)}; all if none")
    parser.add_argument("--waiting", default="100,10000", help="lengths of the queue, separated by commas")
    parser.add_argument("--steps", type=int, default=2000, help="steps that are measured")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    args = parser.parse_args()
    policies = args.policies or list(POLICIES.names)
    if unknown := set(policies) - set(POLICIES.names):
        parser.error(f"unknown policies: {', '.join(sorted(unknown))}")

    print(f"{machine()}\n{NUM_ROWS} running, {args.steps:,} steps; microseconds")
    lengths = [int(length) for length in args.waiting.split(",")]
    rows = []
    for case in product(WORKLOADS, policies, (0, LOOKAHEAD)):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            rows += process.submit(measure_steps, *case, lengths, args.steps).result()
    print_table(rows)
    for policy in policies:
        before = admissions_before_the_cold(policy)
        print(
            f"{policy}: {before} of 1,000 later requests ran before the one that nobody shares, at most {MAX_OVERTAKES}"
        )
    if args.json:
        figures = {"machine": machine(), "waiting": args.waiting, "rows": [asdict(row) for row in rows]}
        args.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
