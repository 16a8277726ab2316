"""What it costs to record the loop's steps: when nobody looks, when somebody asks every 50 steps, and with a trace.

    python benchmarks/bench_recorder.py [--running 256] [--steps 4000]

Requests that decode, under overlap, through the real loop; the engine answers at once. The ways take turns in one
process, 50 steps each, so that a neighbour on the machine slows all of them. CPU time of the loop's thread,
microseconds a step, medians of the turns. calls: those that the loop makes while nobody looks, timed alone, as in a
whole step they are lost in its noise. writing: what the trace's own thread takes for a step, timed alone.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from timeit import repeat

import numpy as np
from rich.console import Console
from rich.table import Table
from stopwatch import machine

from minisgl.core import BatchResult, ForwardInput, Limits, SamplingParams
from minisgl.message import ActivityMsg, LocalQueue, Reply, RequestMsg, UserMsg
from minisgl.scheduler.cache_manager import CacheManager
from minisgl.scheduler.loop import Loop
from minisgl.scheduler.scheduler import Scheduler
from minisgl.scheduler.trace import Trace, TraceFile
from minisgl.scheduler.trace_events import TraceEvents

MAX_SEQ_LEN, PAGE_SIZE, TURN = 8192, 16, 50
WAYS = ("off", "asked", "trace")


class Output:
    def __init__(self, num_rows: int) -> None:
        self._tokens = np.full(num_rows, 3, np.int32)

    def result(self) -> BatchResult:
        return BatchResult(self._tokens, device_s=(0.0, 1.0))


class Bench:
    """One loop, whose requests decode for ever."""

    def __init__(self, num_running: int, way: str, folder: Path) -> None:
        num_pages = num_running * MAX_SEQ_LEN // PAGE_SIZE
        manager = CacheManager(num_pages, PAGE_SIZE, num_running, MAX_SEQ_LEN, "radix")
        limits = Limits(1000, MAX_SEQ_LEN, num_pages * PAGE_SIZE)
        self.scheduler = Scheduler(manager, limits, max_extend_tokens=8192, alternates=False)
        inbox: LocalQueue[RequestMsg] = LocalQueue()
        outbox: LocalQueue[Reply] = LocalQueue()
        self.loop = Loop(self.scheduler, _forward, inbox, outbox, overlap=True)
        self.way, self._inbox, self._outbox = way, inbox, outbox
        self.trace = Trace(str(folder / "trace.json"), limits.pool_len) if way == "trace" else None
        if self.trace is not None:
            self.scheduler.recorder.send_to(self.trace.put)
        prompts, params = _prompts(), SamplingParams(max_tokens=MAX_SEQ_LEN, ignore_eos=True)
        inbox.send([UserMsg(uid, next(prompts), params, seed=uid) for uid in range(num_running)])

    def turn(self) -> float:
        """Microseconds a step."""
        began = time.thread_time()
        for step in range(TURN):
            if self.way == "asked" and step == 0:
                self._inbox.send([ActivityMsg(-1, since=max(0, self.scheduler.recorder._num_steps - TURN))])
            self.loop.step()
            self._outbox.receive(timeout=0)
        return (time.thread_time() - began) * 1e6 / TURN


def _forward(forward_input: ForwardInput) -> Output:
    return Output(len(forward_input.batch.reqs))


def _prompts() -> Iterator[np.ndarray]:
    rng = np.random.default_rng(0)
    while True:
        yield rng.integers(3, 1000, 100, np.int32)


def time_calls(bench: Bench) -> float:
    """Microseconds that the calls of one step take while nobody looks."""
    recorder = bench.scheduler.recorder

    def calls() -> None:
        recorder.begin(1.0)
        recorder.planned(0, None, None)  # type: ignore[arg-type]
        recorder.settled(0, 1.0, 2.0, None)

    return min(repeat(calls, number=10_000, repeat=20)) / 10_000 * 1e6


def time_writing(bench: Bench, folder: Path) -> tuple[float, float]:
    """Microseconds and bytes of the trace for each of the steps that are kept."""
    records, _ = bench.scheduler.recorder.since(0)
    file, events = TraceFile(folder / "again.json"), TraceEvents(1 << 40)
    began = time.thread_time()
    for record in records:
        file.write(events.of(record))
    took = time.thread_time() - began
    file.close()
    return took * 1e6 / len(records), (folder / "again.json").stat().st_size / len(records)


def measure(num_running: int, num_steps: int, folder: Path) -> None:
    benches = [Bench(num_running, way, folder) for way in WAYS]
    for bench in benches:
        bench.turn()
    gc.collect()
    gc.freeze()
    times = np.array([[bench.turn() for bench in benches] for _ in range(num_steps // TURN)])
    medians = np.median(times, axis=0)
    table = Table("recording", "a step", "over off")
    for way, value in zip(WAYS, medians, strict=True):
        table.add_row(way, f"{value:,.1f}", f"{value - medians[0]:+.1f}")
    Console(width=110).print(table)
    calls, (writing, size) = time_calls(benches[0]), time_writing(benches[-1], folder)
    print(f"calls {calls:.2f}, {calls / medians[0]:.2%} of a step; writing {writing:.1f}, {size:,.0f} bytes")
    for bench in benches:
        if bench.trace is not None:
            bench.trace.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--running", type=int, default=256, help="requests that decode")
    parser.add_argument("--steps", type=int, default=4000, help="steps that are measured, of each way")
    args = parser.parse_args()
    print(f"{machine()}\n{args.running} running, {args.steps:,} steps; microseconds a step")
    with TemporaryDirectory() as folder:
        measure(args.running, args.steps, Path(folder))


if __name__ == "__main__":
    main()
