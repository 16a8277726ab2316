"""What it costs an engine to show its radix tree: how long a step is held up, and how large the answer is.

    python benchmarks/bench_inspect.py --nodes 100000

Trees: of one system prompt for each of 50 groups and an end of its own for each prompt ("wide"), of chats whose turns
branch ("deep"), and of prompts that share nothing ("flat"). No model: what `TreeMsg` adds to a step is one slice, which
is all that is timed, in CPU time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch

from minisgl.core.picture import TreePicture
from minisgl.kvcache import RadixPrefixCache
from minisgl.message import TreeReply
from minisgl.message.wire import news_codec
from minisgl.server.endpoints.inspect_tree import encode_tree
from minisgl.utils.arrays import Int32Array
from minisgl.utils.garbage import look_less_often, settle

NUM_GROUPS, VOCAB = 50, 50_000


def wide(rng: np.random.Generator) -> Iterator[Int32Array]:
    """50 tokens that many share, and 20 of its own."""
    starts = rng.integers(0, VOCAB, (NUM_GROUPS, 50), np.int32)
    while True:
        yield np.concatenate([starts[rng.integers(NUM_GROUPS)], rng.integers(0, VOCAB, 20, np.int32)])


def deep(rng: np.random.Generator) -> Iterator[Int32Array]:
    """The same, and between them twelve turns of 4 tokens, each one of two."""
    starts = rng.integers(0, VOCAB, (NUM_GROUPS, 50), np.int32)
    while True:
        turns = np.repeat(rng.integers(0, 2, 12, np.int32), 4)
        yield np.concatenate([starts[rng.integers(NUM_GROUPS)], turns, rng.integers(0, VOCAB, 4, np.int32)])


def flat(rng: np.random.Generator) -> Iterator[Int32Array]:
    """Nothing is shared: all are children of the root, which are copied in one go."""
    while True:
        yield rng.integers(0, 2**31 - 1, 3, np.int32)


def grow(prompts: Iterator[Int32Array], num_nodes: int) -> RadixPrefixCache:
    """A tree of about so many nodes."""
    cache, num_pages, since = RadixPrefixCache(torch.device("cpu"), 1), 0, 0
    for prompt in prompts:
        pages = np.arange(num_pages, num_pages + len(prompt), dtype=np.int32)
        cache.insert_pages(prompt, pages)
        num_pages += len(prompt)
        since += 1
        if since * 2 > num_nodes / 10:  # an insertion makes two nodes at most
            since = 0
            if count_nodes(cache) >= num_nodes:
                break
    return cache


def count_nodes(cache: RadixPrefixCache) -> int:
    return sum(1 for _ in cache.runs(head_len=0))


def look(cache: RadixPrefixCache, max_nodes: int) -> tuple[TreePicture, list[float]]:
    """The picture, and the seconds of each of its slices."""
    slices, spent = cache.view.picture(None, max_nodes, 0), list[float]()
    while True:
        begun = time.thread_time()
        try:
            next(slices)
        except StopIteration as done:
            spent.append(time.thread_time() - begun)
            picture: TreePicture = done.value
            return picture, spent
        spent.append(time.thread_time() - begun)


def report(name: str, cache: RadixPrefixCache, max_nodes: int, num_runs: int) -> None:
    runs = [look(cache, max_nodes) for _ in range(num_runs)]
    picture = runs[0][0]
    times = np.sort(np.concatenate([spent for _, spent in runs])) * 1e3
    frame, wire_s = timed(lambda: news_codec().encode([TreeReply(1, picture)]))
    body, json_s = timed(lambda: encode_tree(picture, None))
    whole = float(np.median([sum(spent) for _, spent in runs]))
    p50, p99 = (float(np.percentile(times, percent)) for percent in (50, 99))
    print(
        f"{name:>5}  {picture.num_nodes:>7,} nodes, {max_nodes:>6,} shown: {len(runs[0][1])} steps, held up by "
        f"{p50:.2f} ms (p50), {p99:.2f} (p99), {times[-1]:.2f} (most), {whole * 1e3:.0f} ms in all; to the server "
        f"{len(frame):,} bytes in {wire_s * 1e3:.1f} ms, of JSON {len(body):,} in {json_s * 1e3:.0f} ms"
    )


def timed(function: Callable[[], bytes]) -> tuple[bytes, float]:
    begun = time.thread_time()
    result = function()
    return result, time.thread_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--max-nodes", type=int, nargs="+", default=[1500, 5000])
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    look_less_often()
    for shape in (wide, deep, flat):
        cache = grow(shape(np.random.default_rng(0)), args.nodes)
        settle()
        for max_nodes in args.max_nodes:
            report(shape.__name__, cache, max_nodes, args.runs)


if __name__ == "__main__":
    main()
