"""What it costs to say why a prompt was not cached: the cache with and without, in turns, in one process.

    python benchmarks/bench_explain.py [--page 1,16] [--turns 4000] [--json FILE]

A turn is what a request of one step asks of the cache: match, lock, pages (which evicts), insert, unlock. CPU time of
one thread in microseconds, medians. The prompts are those of bench_scheduler.py: shared, 300 tokens behind one of 100
prefixes of 1,000; random, 100-700 tokens in common with nobody. again: of 1,200 such prompts each comes again once it
was evicted. The pool holds a tenth of the prompts' tokens, and as many evicted tokens are remembered. explain: what an
admission takes more.
"""

from __future__ import annotations

import argparse
import gc
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path
from statistics import median

import numpy as np
from bench_scheduler import WORKLOADS
from rich.console import Console
from rich.table import Table
from stopwatch import Stopwatch, machine

from minisgl.kvcache import BaseCacheHandle
from minisgl.scheduler.cache_manager import CacheManager
from minisgl.utils.arrays import Int32Array

POOL_LEN, MAX_SEQ_LEN, NUM_AGAIN = 64_000, 4096, 1200
MAX_WARM_UP = 1200  # turns that are not measured: by then pool and memory are full


class Side:
    """One cache and its clocks."""

    def __init__(self, page_size: int, explains: bool) -> None:
        num_pages = POOL_LEN // page_size
        ghost_tokens = POOL_LEN if explains else None
        self.manager = CacheManager(num_pages, page_size, 1, MAX_SEQ_LEN, "radix", ghost_tokens=ghost_tokens)
        self.matches, self.rests, self.explanations = Stopwatch(), Stopwatch(), Stopwatch()

    def turn(self, prompt: Int32Array) -> None:
        manager = self.manager
        handle = self.matches(manager.match, prompt)
        if manager.explains:
            self.explanations(manager.explain, prompt, handle=handle)
        self.rests(self._rest, prompt, handle)

    def _rest(self, prompt: Int32Array, handle: BaseCacheHandle) -> None:
        manager = self.manager
        allocation = manager.admit(handle, len(prompt))
        assert allocation is not None
        row = allocation.table_idx
        manager.rows.device_len[row] = allocation.hit_len
        counts = np.array([len(prompt) - allocation.hit_len], np.int32)
        manager.grow(manager.growth(np.array([row], np.intp), counts))
        manager.release(allocation, prompt)

    def turn_us(self) -> float:
        return median(self.matches.times) + median(self.rests.times)

    def forget_times(self) -> None:
        for watch in (self.matches, self.rests, self.explanations):
            watch.times.clear()


@dataclass(frozen=True)
class Row:
    """Microseconds. more: what a turn takes more, as a part of it."""

    workload: str
    page_size: int
    without: float
    turn: float
    more: float
    explain: float


def prompts(workload: str) -> Iterator[Int32Array]:
    rng = np.random.default_rng(0)
    if workload != "again":
        return WORKLOADS[workload](rng)
    return cycle(islice(WORKLOADS["random"](rng), NUM_AGAIN))


def measure(workload: str, page_size: int, num_turns: int) -> Row:
    without, explaining = Side(page_size, False), Side(page_size, True)
    sides = [without, explaining]
    for i, prompt in enumerate(islice(prompts(workload), MAX_WARM_UP + num_turns)):
        if i == MAX_WARM_UP:
            for side in sides:
                side.forget_times()
            gc.collect()
            gc.disable()
        for side in sides if i % 2 else reversed(sides):
            side.turn(prompt)
    gc.enable()
    base, turn = without.turn_us(), explaining.turn_us()
    return Row(workload, page_size, base, turn, turn / base - 1, median(explaining.explanations.times))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", default="1,16", help="page sizes, separated by commas")
    parser.add_argument("--turns", type=int, default=4000, help="turns that are measured")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    args = parser.parse_args()
    sizes = [int(size) for size in args.page.split(",")]
    rows = [measure(name, size, args.turns) for name in (*WORKLOADS, "again") for size in sizes]
    table = Table("prompts", "page", "turn without", "turn with", "more", "explain")
    for row in rows:
        table.add_row(
            *(row.workload, str(row.page_size), f"{row.without:.1f}", f"{row.turn:.1f}"),
            *(f"{row.more:+.1%}", f"{row.explain:.1f}"),
        )
    print(machine())
    Console(width=100).print(table)
    if args.json:
        args.json.write_text(json.dumps({"machine": machine(), "rows": [asdict(row) for row in rows]}, indent=1))


if __name__ == "__main__":
    main()
