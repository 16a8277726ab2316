"""How long the scheduler takes for a step in which all decode: what the host adds to each token on a GPU.

    python benchmarks/bench_running.py [--running 256] [--page-size 16] [--steps 1000] [--cold] [--json FILE]

With overlap: each batch is committed after the next one was planned; replies are taken too, and the engine between them
answers at once. CPU time of one thread, microseconds, medians. Prompts have 500 to 516 tokens.

alone: in common with nobody. shared: 320 of them are everybody's, and 80 more those of an eighth of the requests.
changing: the same, and one in two steps a request ends and another one takes its place, so groups are found anew.
--cold: 64 MB are read before each step, so that it finds next to nothing in the caches, as after a wait for a GPU.
"""

from __future__ import annotations

import argparse
import gc
import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from stopwatch import Stopwatch, machine

from minisgl.core import Batch, BatchResult, Limits, SamplingParams
from minisgl.message import TokenReply, UserMsg
from minisgl.scheduler.cache_manager import CacheManager
from minisgl.scheduler.scheduler import Scheduler
from minisgl.utils.arrays import Int32Array
from minisgl.utils.math import div_ceil

VOCABULARY, MAX_SEQ_LEN, BUDGET = 150_000, 4096, 8192
COLD_BYTES = 64 << 20
WARM_UP = 200  # steps that are not measured
CASES = {"alone": (0, 0, False), "shared": (320, 80, False), "changing": (320, 80, True)}

Figures = dict[str, float]


def grouped_prompts(everybody: int, eighth: int) -> Iterator[Int32Array]:
    """The tokens of everybody, those of an eighth, and one's own."""
    rng = np.random.default_rng(0)
    system, shots = rng.integers(3, VOCABULARY, everybody, np.int32), rng.integers(3, VOCABULARY, (8, eighth), np.int32)
    for number in count():
        own = rng.integers(3, VOCABULARY, 500 - everybody - eighth + number % 17, np.int32)
        yield np.concatenate([system, shots[number % 8], own])


class Bench:
    """`num_running` requests that decode. changes: one ends every other step, and the next one comes."""

    def __init__(
        self, prompts: Iterator[Int32Array], num_running: int, page_size: int, changes: bool, is_cold: bool
    ) -> None:
        num_pages = num_running * div_ceil(MAX_SEQ_LEN, page_size)
        manager = CacheManager(num_pages, page_size, num_running, MAX_SEQ_LEN, "radix")
        limits = Limits(VOCABULARY, MAX_SEQ_LEN, num_pages * page_size)
        self.scheduler = Scheduler(manager, limits, BUDGET, alternates=False)
        self.parts = {name: Stopwatch() for name in ("plan", "commit", "replies")}
        self._prompts, self._uids, self._num_running, self._changes = prompts, count(), num_running, changes
        self._launched: Batch | None = None
        self._others = np.ones(COLD_BYTES if is_cold else 0, np.int8)
        for number in range(num_running):
            self._arrive(2 * number + 50 if changes else MAX_SEQ_LEN - 600)

    def step(self) -> None:
        self._others.max(initial=0)
        batch = self.parts["plan"](self.scheduler.plan)  # None: the last token of the only one is in flight
        if self._launched is not None:
            tokens = np.array([3 if req.samples else -1 for req in self._launched.reqs], np.int32)
            self.parts["commit"](self.scheduler.commit, self._launched, BatchResult(tokens))
        else:
            self.parts["commit"](_nothing)  # so that each part has a time for each step
        self._launched = batch
        for reply in self.parts["replies"](self.scheduler.take_replies):
            if isinstance(reply, TokenReply) and reply.finish_reason is not None:
                self._arrive(2 * self._num_running)

    def _arrive(self, max_tokens: int) -> None:
        uid = next(self._uids)
        params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
        self.scheduler.receive([UserMsg(uid, next(self._prompts), params, seed=uid)])


def _nothing() -> None:
    """No batch is in flight."""


def measure(case: str, num_running: int, page_size: int, num_steps: int, is_cold: bool) -> Figures:
    everybody, eighth, changes = CASES[case]
    bench = Bench(grouped_prompts(everybody, eighth), num_running, page_size, changes, is_cold)
    for _ in range(WARM_UP):
        bench.step()
    gc.collect()
    gc.freeze()
    for watch in bench.parts.values():
        watch.times.clear()
    for _ in range(num_steps):
        bench.step()
    times = np.array([watch.times for watch in bench.parts.values()])
    figures = dict(zip(bench.parts, np.median(times, axis=1).tolist(), strict=True))
    whole = times.sum(axis=0)
    return figures | {
        "step": float(np.median(whole)),
        "mean": float(whole.mean()),
        "p99": float(np.percentile(whole, 99)),
    }


def print_table(figures: dict[str, Figures]) -> None:
    table = Table("prompts", *next(iter(figures.values())))
    for case, row in figures.items():
        table.add_row(case, *[f"{figure:,.0f}" for figure in row.values()])
    Console(width=110).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--running", type=int, default=256, help="requests that decode")
    parser.add_argument("--page-size", type=int, default=16)
    parser.add_argument("--steps", type=int, default=1000, help="steps that are measured")
    parser.add_argument("--cold", action="store_true", help="with next to nothing in the caches")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    args = parser.parse_args()
    print(f"{machine()}\n{args.running} running, page size {args.page_size}, {args.steps:,} steps; microseconds")
    figures = {case: measure(case, args.running, args.page_size, args.steps, args.cold) for case in CASES}
    print_table(figures)
    if args.json:
        args.json.write_text(
            json.dumps({"machine": machine(), "running": args.running, "cases": figures}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
