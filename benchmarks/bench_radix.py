"""How long the radix cache takes for a match, a turn of a chat, an eviction, a look-up, a request.

    python benchmarks/bench_radix.py [W1 W2 W3 W4 W5 W5s] [--page 1,16] [--quick] [--json FILE]

CPU time of one thread in microseconds, by the calls that the scheduler makes (NumPy arrays and page numbers in and
out), next to what mini-sglang 20fcd7f (tensors in and out, its C++ key comparison) took for the same workloads on a
machine that compared 100,000 equal tokens in 8.7 us; its figures are scaled by that time here. W1 and W4 are medians,
the others means.
"""

from __future__ import annotations

import argparse
import gc
import json
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, median

import numpy as np
import radix_workloads as workloads
import torch
from radix_workloads import Int32Array
from rich.console import Console
from rich.table import Table
from stopwatch import Stopwatch, compare_us, machine, resident_bytes

from minisgl.kvcache import RadixPrefixCache

REFERENCE_COMPARE_US = 8.7
PREDECESSOR = {
    ("W1 match of 100,000 tokens in 1 node", 1): 42.0,
    ("W1 match of 100,000 tokens in 1 node", 16): 42.0,
    ("W1 match of 100,000 tokens in 100 nodes", 1): 705.0,
    ("W1 match of 100,000 tokens in 100 nodes", 16): 785.0,
    ("W2 a turn of a chat", 1): 157.0,
    ("W2 bytes a cached token", 1): 54.0,
    ("W3 evict 1,024 tokens of 10,000 leaves", 1): 8_400.0,
    ("W3 evict 1,024 tokens of 100,000 leaves", 1): 96_300.0,
    ("W3 evict 1,024 tokens of 300,000 leaves", 1): 346_800.0,
    ("W4 look-up among 262,144 leaves", 1): 36.0,
    ("W5 a request of 500-4,000 tokens", 1): 128.0,
    ("W5s a request of 50-400 tokens", 1): 556.0,
}


@dataclass(frozen=True)
class Row:
    """One figure: microseconds, but for the rows that say bytes. predecessor: scaled to this machine."""

    what: str
    page_size: int
    ours: float
    predecessor: float | None


def make_cache(page_size: int) -> RadixPrefixCache:
    return RadixPrefixCache(torch.device("cpu"), page_size)


def insert_all(prompts: Iterator[Int32Array], page_size: int) -> RadixPrefixCache:
    """A cache of `prompts`, and a garbage collector that need not look at it any more, as in a server at work."""
    cache, num_pages = make_cache(page_size), 0
    for prompt in prompts:
        new = np.arange(num_pages, num_pages + len(prompt) // page_size, dtype=np.int32)
        num_pages += len(new)
        cache.insert_pages(prompt, new)
    gc.collect()
    gc.freeze()
    return cache


def w1(page_size: int, quick: bool) -> Iterator[tuple[str, float]]:
    prompt = workloads.long_prompt()
    for num_nodes, words in ((1, "1 node"), (100, "100 nodes")):
        ends = np.linspace(0, len(prompt), num_nodes + 1, dtype=int)[1:]
        cache = insert_all((prompt[:end] for end in ends), page_size)
        watch = Stopwatch()
        for _ in range(30 if quick else 300):
            watch(cache.match_prefix, prompt.copy())
        yield f"W1 match of 100,000 tokens in {words}", median(watch.times)


def w2(page_size: int, quick: bool) -> Iterator[tuple[str, float]]:
    chats = workloads.multi_turn_chats(100 if quick else 1000, 10)
    watch, num_pages = Stopwatch(), 0
    before, cache = resident_bytes(), make_cache(page_size)
    for turn in range(10):
        for chat in chats:
            ids = chat.history[: chat.ends[turn]]
            handle = watch(cache.match_prefix, ids).cuda_handle
            watch(cache.lock_handle, handle)
            matched = watch(handle.get_matched_pages)
            num_new = len(ids) // page_size - len(matched)
            new = np.arange(num_pages, num_pages + num_new, dtype=np.int32)
            num_pages += num_new
            watch(cache.insert_pages, ids, np.concatenate([matched, new]))
            watch(cache.lock_handle, handle, unlock=True)
    yield "W2 a turn of a chat", sum(watch.times) / (10 * len(chats))
    watch.times.clear()
    yield "W2 bytes a cached token", (resident_bytes() - before) / cache.size_info.total_size


def w3(page_size: int, quick: bool) -> Iterator[tuple[str, float]]:
    for num_leaves in (10_000,) if quick else (10_000, 100_000, 300_000):
        cache = insert_all(workloads.one_leaf_chats(num_leaves), page_size)
        watch = Stopwatch()
        for _ in range(100):
            watch(cache.evict_pages, 1024 // page_size)
        yield f"W3 evict 1,024 tokens of {num_leaves:,} leaves", fmean(watch.times)


def w4(page_size: int, quick: bool) -> Iterator[tuple[str, float]]:
    tree = workloads.BushyTree(16 if quick else 64)
    cache = insert_all(tree.shuffled(), page_size)
    watch = Stopwatch()
    for prompt in tree.lookups(20_000):
        watch(cache.match_prefix, prompt)
    yield f"W4 look-up among {tree.num_leaves:,} leaves", median(watch.times)


def serve_mix(shape: workloads.MixShape, page_size: int, num_requests: int) -> float:
    """Microseconds of the cache's own time a request, in a pool of 1M tokens, 16 requests running."""
    cache, free, watch = make_cache(page_size), workloads.FreePages(1_000_000 // page_size), Stopwatch()
    running = deque([cache.match_prefix(np.empty(0, np.int32)).cuda_handle] * 16)
    for ids in workloads.zipf_mix(shape, num_requests):
        handle = watch(cache.match_prefix, ids).cuda_handle
        watch(cache.lock_handle, handle)
        num_new = len(ids) // page_size - handle.cached_len // page_size
        if num_new > free.num_free:
            free.give(watch(cache.evict_pages, num_new - free.num_free))
        matched = watch(handle.get_matched_pages)
        inserted = watch(cache.insert_pages, ids, np.concatenate([matched, free.take(num_new)])).handle
        watch(cache.lock_handle, inserted)
        watch(cache.lock_handle, handle, unlock=True)
        running.append(inserted)
        watch(cache.lock_handle, running.popleft(), unlock=True)
    return sum(watch.times) / num_requests


def w5(page_size: int, quick: bool) -> Iterator[tuple[str, float]]:
    yield "W5 a request of 500-4,000 tokens", serve_mix(workloads.LONG_MIX, page_size, 2_000 if quick else 20_000)


def w5s(page_size: int, quick: bool) -> Iterator[tuple[str, float]]:
    yield "W5s a request of 50-400 tokens", serve_mix(workloads.SHORT_MIX, page_size, 5_000 if quick else 20_000)


WORKLOADS = {"W1": w1, "W2": w2, "W3": w3, "W4": w4, "W5": w5, "W5s": w5s}


def figures(name: str, page_size: int, quick: bool) -> list[tuple[str, float]]:
    return list(WORKLOADS[name](page_size, quick))


def measure(names: list[str], page_sizes: list[int], quick: bool, scale: float) -> Iterator[Row]:
    """One new process for each workload, whose memory is then its own."""
    for page_size, name in product(page_sizes, names):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            for what, ours in process.submit(figures, name, page_size, quick).result():
                known = PREDECESSOR.get((what, page_size))
                factor = 1.0 if "bytes" in what else scale
                yield Row(what, page_size, ours, None if known is None else known * factor)


def print_table(rows: list[Row]) -> None:
    table = Table("workload", "page", "ours", "predecessor", "ratio")
    for row in rows:
        known = row.predecessor
        compared = ("-", "-") if known is None else (f"{known:,.0f}", f"{known / row.ours:.1f}x")
        table.add_row(row.what, str(row.page_size), f"{row.ours:,.1f}", *compared)
    Console(width=100).print(table)
    evictions = [row.ours for row in rows if row.what.startswith("W3") and row.page_size == rows[0].page_size]
    if len(evictions) > 1:
        print(f"W3: an eviction from 30 times the leaves takes {evictions[-1] / evictions[0]:.1f} times as long")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="W", help=f"of {', '.join(WORKLOADS)}; all if none is named")
    parser.add_argument("--page", default="1,16", help="page sizes, separated by commas")
    parser.add_argument("--quick", action="store_true", help="smaller workloads, a few seconds in all")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    args = parser.parse_args()
    if unknown := set(args.workloads) - set(WORKLOADS):
        parser.error(f"unknown workloads: {', '.join(sorted(unknown))}")

    scale = compare_us() / REFERENCE_COMPARE_US
    print(
        f"{machine()}\ncomparing 100,000 tokens takes {scale:.2f} times the {REFERENCE_COMPARE_US} us of the reference"
    )
    rows = list(measure(args.workloads or list(WORKLOADS), [int(p) for p in args.page.split(",")], args.quick, scale))
    print_table(rows)
    if args.json:
        figures = {"machine": machine(), "scale": scale, "quick": args.quick, "rows": [asdict(row) for row in rows]}
        args.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
