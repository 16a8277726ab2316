"""The workloads of `bench_radix.py`, run on several caches in turn, so that a busy machine slows all of them alike.

Python's garbage collector is off while calls are timed, for every cache: with several of them in one process a pass
would be charged to whoever set it off. A cache that has used up its time in a workload is left out of its later rounds.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np
import radix_workloads as workloads
from radix_caches import Clock, PrefixCache
from radix_workloads import FreePages, Int32Array
from stopwatch import resident_bytes

BUDGET_US = 6e6
MEMCMP = "memcmp"

Kinds = Sequence[type[PrefixCache]]
Figures = Iterator[tuple[str, dict[str, float]]]


@contextmanager
def collector_off() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


class Contestant:
    """A cache, the clock for its calls and the pages beside it."""

    def __init__(self, kind: type[PrefixCache], page_size: int, num_pages: int) -> None:
        self.name = kind.name
        self.cache = kind(page_size, num_pages * page_size)
        self.clock = Clock()
        self.free = FreePages(num_pages)


def contestants(kinds: Kinds, page_size: int, num_tokens: int) -> list[Contestant]:
    return [Contestant(kind, page_size, num_tokens // page_size) for kind in kinds]


def put_all(contestant: Contestant, prompts: Iterator[Int32Array]) -> None:
    for prompt in prompts:
        contestant.cache.put(prompt, contestant.free)


def in_turns(entered: list[Contestant], num_rounds: int) -> Iterator[tuple[int, Contestant]]:
    """The number of a round and who is next in it; who begins changes from round to round."""
    for i in range(num_rounds):
        for j in range(len(entered)):
            contestant = entered[(i + j) % len(entered)]
            if contestant.clock.spent_us < BUDGET_US:
                yield i, contestant


def check_hit(contestant: Contestant, prompt: Int32Array) -> None:
    """AssertionError unless all of `prompt` is cached, but for a last page: vLLM computes a last token anew."""
    cache = contestant.cache
    found = cache.cached_len(cache.match(cache.prompt(prompt)))
    assert len(prompt) - 2 * cache.page_size < found <= len(prompt), f"{contestant.name} found {found} tokens"


def growing(prompt: Int32Array, num_nodes: int) -> Iterator[Int32Array]:
    """A prompt that was sent in `num_nodes` steps, each a bit longer: a chain of nodes that could as well be one."""
    return (prompt[:end] for end in np.linspace(0, len(prompt), num_nodes + 1, dtype=int)[1:])


def branching(prompt: Int32Array, num_nodes: int, page_size: int) -> Iterator[Int32Array]:
    """The same, and a page that goes on otherwise below each node of the chain: it has to stay one."""
    for begun in growing(prompt, num_nodes):
        yield begun
        start = len(begun) // page_size * page_size
        yield np.concatenate([prompt[:start], (prompt[start - page_size : start] + 1) % workloads.VOCAB])


def w1(kinds: Kinds, page_size: int, quick: bool) -> Figures:
    prompt = workloads.long_prompt()
    shapes: dict[str, Callable[[], Iterator[Int32Array]]] = {
        "1 node": lambda: growing(prompt, 1),
        "100 nodes, grown": lambda: growing(prompt, 100),
        "100 nodes, branches": lambda: branching(prompt, 100, page_size),
    }
    same = prompt.tobytes()
    for shape, prompts in shapes.items():
        entered, memcmp = contestants(kinds, page_size, 110_000), Clock()
        for contestant in entered:
            put_all(contestant, prompts())
            check_hit(contestant, prompt)
        with collector_off():
            for _, contestant in in_turns(entered, 3 if quick else 30):
                for _ in range(10):
                    contestant.clock.matches(contestant.cache.match, contestant.cache.prompt(prompt))
                for _ in range(10):
                    memcmp.matches(same.startswith, bytearray(same))
        figures = {contestant.name: median(contestant.clock.matches.times) for contestant in entered}
        yield f"W1 match 100,000 tokens, {shape}", {**figures, MEMCMP: median(memcmp.matches.times)}


def play_chats(kinds: Kinds, page_size: int, chats: list[workloads.Chat]) -> list[Contestant]:
    """Ten turns of each chat on new caches."""
    entered = contestants(kinds, page_size, 2000 + sum(chat.ends[-1] - 2000 for chat in chats) + len(chats) * page_size)
    num_rounds = len(chats) // 50
    with collector_off():
        for i, contestant in in_turns(entered, 10 * num_rounds):
            turn, first = i // num_rounds, i % num_rounds * 50
            for chat in chats[first : first + 50]:
                contestant.cache.turn(contestant.clock, chat.history[: chat.ends[turn]], contestant.free)
    return entered


def w2(kinds: Kinds, page_size: int, quick: bool) -> Figures:
    """Three times over: of each match the shortest counts, for its tail shall be the cache's and not the machine's."""
    chats = workloads.multi_turn_chats(100 if quick else 1000, 10)
    turns: dict[str, list[float]] = {kind.name: [] for kind in kinds}
    matches: dict[str, list[list[float]]] = {kind.name: [] for kind in kinds}
    for _ in range(3):
        for it in play_chats(kinds, page_size, chats):
            turns[it.name].append(it.clock.spent_us / len(it.clock.matches.times))
            matches[it.name].append(it.clock.matches.times)
    yield "W2 a turn of a chat", {name: median(means) for name, means in turns.items()}
    shortest = {name: [min(times) for times in zip(*again, strict=False)] for name, again in matches.items()}
    yield "W2 match, 99th percentile", {name: float(np.percentile(us, 99)) for name, us in shortest.items()}


def w3(kinds: Kinds, page_size: int, num_leaves: int) -> Figures:
    entered = contestants(kinds, page_size, num_leaves // 100 * 64 + num_leaves * 32)
    for contestant in entered:
        put_all(contestant, workloads.one_leaf_chats(num_leaves))
    with collector_off():
        for _, contestant in in_turns(entered, 10):
            for _ in range(10):
                contestant.clock.others(contestant.cache.evict, 1024)
    figures = {contestant.name: fmean(contestant.clock.others.times) for contestant in entered}
    yield f"W3 evict 1,024 tokens of {num_leaves:,} leaves", figures


def w4(kinds: Kinds, page_size: int, quick: bool) -> Figures:
    tree = workloads.BushyTree(16 if quick else 64)
    levels = tree.fan_out + tree.fan_out**2 + tree.fan_out**3
    entered = contestants(kinds, page_size, levels * 16)
    lookups = tree.lookups(20_000)
    for contestant in entered:
        put_all(contestant, tree.shuffled())
        check_hit(contestant, lookups[0])
    with collector_off():
        for i, contestant in in_turns(entered, 40):
            for prompt in lookups[i * 500 : i * 500 + 500]:
                contestant.clock.matches(contestant.cache.match, contestant.cache.prompt(prompt))
    figures = {contestant.name: median(contestant.clock.matches.times) for contestant in entered}
    yield f"W4 look-up among {tree.num_leaves:,} leaves", figures


def mix(kinds: Kinds, page_size: int, shape: workloads.MixShape, num_requests: int) -> dict[str, float]:
    """Microseconds of each cache's own time a request, in a pool of 1M tokens, 16 requests running."""
    requests = list(workloads.zipf_mix(shape, num_requests))
    entered = contestants(kinds, page_size, 1_000_000)
    running: dict[str, deque[object]] = {contestant.name: deque() for contestant in entered}
    with collector_off():
        for i, contestant in in_turns(entered, num_requests // 250):
            locks = running[contestant.name]
            for ids in requests[i * 250 : i * 250 + 250]:
                locks.append(contestant.cache.serve(contestant.clock, ids, contestant.free))
                if len(locks) > 16:
                    contestant.cache.finish(contestant.clock, locks.popleft())
    return {it.name: it.clock.spent_us / len(it.clock.matches.times) for it in entered}


def w5(kinds: Kinds, page_size: int, quick: bool) -> Figures:
    num_requests = 2_000 if quick else 20_000
    yield "W5 a request of 500-4,000 tokens", mix(kinds, page_size, workloads.LONG_MIX, num_requests)


def w5s(kinds: Kinds, page_size: int, quick: bool) -> Figures:
    num_requests = 5_000 if quick else 20_000
    yield "W5s a request of 50-400 tokens", mix(kinds, page_size, workloads.SHORT_MIX, num_requests)


def w2_memory(kinds: Kinds, page_size: int, quick: bool) -> Figures:
    """Resident bytes for each token that one cache holds after W2; its process should be new."""
    [kind] = kinds
    chats = workloads.multi_turn_chats(100 if quick else 1000, 10)
    num_tokens = 2000 + sum(chat.ends[-1] - 2000 for chat in chats)
    free, clock = FreePages(num_tokens // page_size + len(chats)), Clock()
    before = resident_bytes()
    cache = kind(page_size, num_tokens + len(chats) * page_size)
    for turn in range(10):
        for chat in chats:
            cache.turn(clock, chat.history[: chat.ends[turn]], free)
        clock.matches.times.clear()
        clock.others.times.clear()
    yield "W2 bytes a cached token", {kind.name: (resident_bytes() - before) / num_tokens}


class Job(NamedTuple):
    """What a process of its own runs: `run(kinds, page_size, **options)`."""

    run: Callable[..., Figures]
    kinds: Kinds
    options: dict[str, Any]


def jobs(name: str, ours: type[PrefixCache], peers: Kinds, quick: bool) -> list[Job]:
    """The processes for one workload; evictions from 1,000,000 leaves are for ours alone."""
    kinds = [ours, *peers]
    if name == "W3":
        sizes = {10_000: kinds} if quick else {10_000: kinds, 100_000: kinds, 300_000: kinds, 1_000_000: [ours]}
        return [Job(w3, entered, {"num_leaves": num_leaves}) for num_leaves, entered in sizes.items()]
    memory = [Job(w2_memory, [kind], {"quick": quick}) for kind in kinds] if name == "W2" else []
    return [Job(WORKLOADS[name], kinds, {"quick": quick}), *memory]


WORKLOADS: dict[str, Callable[..., Figures]] = {"W1": w1, "W2": w2, "W3": w3, "W4": w4, "W5": w5, "W5s": w5s}
