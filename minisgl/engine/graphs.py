"""Steps as CUDA graphs: captured once for a few padded batch sizes, replayed with a handful of host calls.

Those of decodes hold all of a step. Those of prompts, with decodes beside them or none, hold the layers of batches so
small that the host takes longer to launch them one call after the other than the device takes to run them.

A graph reads and writes the same addresses each time. What varies reaches it through the staging buffer, whose layout
follows from the padded size alone; the page table, the KV pool and the buffer of last tokens stay where they are.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from minisgl.core import Batch, PageTableUpdate, PrefixGroup, Req, SamplingParams
from minisgl.utils.arrays import NO_IDS
from minisgl.utils.progress import tracked

HOST_BOUND = 1.1  # a batch whose launch takes the host no less than the device needs, over this, gains by a graph
NO_UPDATE = PageTableUpdate(NO_IDS, NO_IDS, NO_IDS)


def padded_sizes(largest: int) -> list[int]:
    """The batch sizes worth a graph: dense where a row more is felt, then in steps of 16. Ascending, `largest` too."""
    sizes = {1, 2, 4, 8, *range(16, largest, 16), largest}
    return sorted(size for size in sizes if size <= largest)


def prompt_sizes(largest: int) -> list[int]:
    """Tokens of batches with prompts that may be worth a graph, ascending: each a third or a half more."""
    sizes = [16, *(base << shift for shift in range(7) for base in (32, 48))][:-1]
    return [size for size in sizes if size <= largest]


class Key(NamedTuple):
    """Which graph. variant: of the attention backend's plan; kernels that a plan does not need are left out."""

    size: int
    variant: Hashable
    has_prompts: bool = False


class Captured(NamedTuple):
    """A graph, and what its captured call returned: tensors that each replay fills anew."""

    graph: torch.cuda.CUDAGraph
    result: object


class GraphPool:
    """Graphs by key, in one pool of memory: no two of them ever run at the same time.

    Each key is run before it is captured, once at least: kernels are compiled and libraries make their workspaces.
    """

    def __init__(self) -> None:
        self._captured: dict[Key, Captured] = {}
        self._sizes: dict[bool, list[int]] = {False: [], True: []}  # by whether they have prompts, ascending
        self._has_run: set[Key] = set()
        self._memory: Any = None
        self._stream: torch.cuda.Stream | None = None

    def __contains__(self, key: Key) -> bool:
        return key in self._captured

    def size_for(self, num_tokens: int, has_prompts: bool = False) -> int | None:
        """The smallest captured size that holds so many tokens."""
        sizes = self._sizes[has_prompts]
        index = bisect_left(sizes, num_tokens)
        return sizes[index] if index < len(sizes) else None

    def is_host_bound(self, key: Key, compute: Callable[[], object]) -> bool:
        """Whether a launch of `compute` takes the host longer than the device needs for it. Runs it; on a GPU."""
        self._run(key, compute)
        torch.cuda.synchronize()
        started = time.perf_counter()
        self._run(key, compute)
        launched = time.perf_counter()
        torch.cuda.synchronize()
        return time.perf_counter() - started < HOST_BOUND * (launched - started)

    def capture(self, key: Key, compute: Callable[[], object]) -> None:
        """Record `compute`, after a run of it if there was none."""
        if key not in self._has_run:
            self._run(key, compute)
        self._captured[key] = self._record(compute)
        self._sizes[key.has_prompts] = sorted({*self._sizes[key.has_prompts], key.size})

    def _run(self, key: Key, compute: Callable[[], object]) -> None:
        """As it is, on a stream that all graphs have in common: memory that one of them is done with on its stream,
        torch gives to the next one on the same stream only."""
        if self._stream is None:
            self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            compute()
        torch.cuda.current_stream().wait_stream(self._stream)
        self._has_run.add(key)

    def _record(self, compute: Callable[[], object]) -> Captured:
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._memory, stream=self._stream, capture_error_mode="thread_local"):
            result = compute()
        self._memory = graph.pool()
        return Captured(graph, result)

    def replay(self, key: Key) -> object:
        """What `compute` returned, filled anew once the device gets there."""
        captured = self._captured[key]
        captured.graph.replay()
        return captured.result


def largest_first(sizes: Sequence[int]) -> Iterator[int]:
    """In an order in which graphs find room in what larger ones have taken; with a bar, if it takes long."""
    yield from tracked(sorted(sizes, reverse=True), "capturing", "graphs")


def host_bound(sizes: Sequence[int], is_host_bound: Callable[[int], bool]) -> Sequence[int]:
    """Those of the ascending sizes for which it is true, which it is up to some size: the device takes longer for more
    tokens, the host hardly does. It is asked of few."""
    return sizes[: bisect_left(sizes, True, key=lambda size: not is_host_bound(size))]


def rehearsals(sizes: Sequence[int], page_size: int, max_seq_len: int) -> Iterator[tuple[int, Batch]]:
    """For every size, largest first, batches of decodes that make a backend show its variants: without and with a long
    prefix that all rows share. All pages are page 0, so that any pool will do."""
    for size in largest_first(sizes):
        yield size, decode_batch(size, length=1)
        shared = (max_seq_len - 1) // page_size * page_size
        if size > 1 and shared:
            rows = np.arange(size, dtype=np.int32)
            yield size, decode_batch(size, max_seq_len, (PrefixGroup(rows, 0, shared),))


def decode_batch(size: int, length: int, groups: tuple[PrefixGroup, ...] = ()) -> Batch:
    """A made-up batch of `size` requests that each compute token number `length`."""
    ids = np.zeros(length, np.int32)
    reqs = tuple(Req(row, row, length - 1, length, length + 1, length, ids, SamplingParams()) for row in range(size))
    return Batch(reqs, NO_UPDATE, step=0, groups=groups)


def prefill_batch(num_tokens: int, max_rows: int, max_seq_len: int) -> Batch:
    """A made-up batch of `num_tokens` prompt tokens, as far as the rows can hold them."""
    lengths = [min(max_seq_len, num_tokens - begin) for begin in range(0, num_tokens, max_seq_len)][:max_rows]
    ids = np.zeros(max(lengths), np.int32)
    reqs = tuple(Req(row, row, 0, n, n + 1, n, ids, SamplingParams()) for row, n in enumerate(lengths))
    return Batch(reqs, NO_UPDATE, step=0)
