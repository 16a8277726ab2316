"""The lines of `bench_cpu.py`: what is asked of every engine, what counts, what is aimed at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from cpu_floors import CpuFloors

VOCAB = 49_000
SYSTEM, QUESTION, NUM_QUESTIONS, ANSWER = 1000, 30, 32, 32
MEMORY_PROMPTS = (4, 1000)
PROMPT, CACHED, PREFILL, STREAM = 1000, 900, 1024, 128

Prompts = list[list[int]]


class Engine(Protocol):
    """One that runs."""

    def first_token_s(self) -> float:
        """Seconds from its start to its first token."""

    def run(self, prompts: Prompts, out: int) -> float:
        """Seconds from the submission of all to the last token."""

    def beyond_bytes(self, computed: int) -> float:
        """Resident memory less weights and the keys and values of so many tokens."""


@dataclass(frozen=True)
class Figure:
    """target: our speed over that of the best peer. at_most: of our own figure, in `unit`.

    floor: the figure at best, or None. Units are tok/s, of which more is better, ms, s and MB, of which less is.
    """

    title: str
    unit: str
    target: float | None = None
    at_most: float | None = None
    floor: Callable[[CpuFloors], float] | None = None

    @property
    def more_is_better(self) -> bool:
        return self.unit == "tok/s"


@dataclass(frozen=True)
class Line:
    """measure gives one number a figure. quants: the engines that are compared. once: repeating would tell nothing."""

    name: str
    figures: tuple[Figure, ...]
    measure: Callable[[Engine, np.random.Generator], tuple[float, ...]]
    quants: tuple[str, ...] = ("q4_1", "int4", "bf16")
    once: bool = False


def random_prompts(rng: np.random.Generator, num: int, length: int) -> Prompts:
    prompts: Prompts = rng.integers(3, VOCAB, (num, length)).tolist()
    return prompts


def streams(num: int) -> Callable[[Engine, np.random.Generator], tuple[float, ...]]:
    def measure(engine: Engine, rng: np.random.Generator) -> tuple[float, ...]:
        return (num * STREAM / engine.run(random_prompts(rng, num, STREAM), STREAM),)

    return measure


def streams_figure(num: int, target: float, title: str) -> tuple[Figure]:
    def floor(floors: CpuFloors) -> float:
        return num * STREAM / floors.workload_s([STREAM] * num, [STREAM] * num)

    return (Figure(title, "tok/s", target, floor=floor),)


def prefill(engine: Engine, rng: np.random.Generator) -> tuple[float, ...]:
    return (PREFILL / engine.run(random_prompts(rng, 1, PREFILL), 1),)


def first_token(engine: Engine, rng: np.random.Generator) -> tuple[float, ...]:
    (cold,) = random_prompts(rng, 1, PROMPT)
    warm = cold[:CACHED] + random_prompts(rng, 1, PROMPT - CACHED)[0]
    return engine.run([cold], 1) * 1e3, engine.run([warm], 1) * 1e3


def shared(engine: Engine, rng: np.random.Generator) -> tuple[float, ...]:
    (system,) = random_prompts(rng, 1, SYSTEM)
    prompts = [system + question for question in random_prompts(rng, NUM_QUESTIONS, QUESTION)]
    return (engine.run(prompts, ANSWER),)


def load(engine: Engine, _: np.random.Generator) -> tuple[float, ...]:
    return (engine.first_token_s(),)


def memory(engine: Engine, rng: np.random.Generator) -> tuple[float, ...]:
    num, length = MEMORY_PROMPTS
    engine.run(random_prompts(rng, num, length), 16)
    return (engine.beyond_bytes(num * (length + 15)) / 1e6,)


FIRST_TOKEN = (
    Figure("first token, 1,000 tokens", "ms", floor=lambda floors: floors.prefill_s([PROMPT]) * 1e3),
    Figure("first token, 900 of 1,000 cached", "ms", 1.0, floor=lambda f: f.prefill_s([PROMPT], [CACHED]) * 1e3),
)
SHARED = Figure(
    "1,000-token system prompt + 32 x 30, 32 out",
    "s",
    2.2,
    floor=lambda floors: floors.shared_s(SYSTEM, NUM_QUESTIONS, QUESTION, ANSWER),
)
PREFILL_FIGURE = Figure("prefill of 1,024", "tok/s", 1.0, floor=lambda floors: PREFILL / floors.prefill_s([PREFILL]))
# Memory comes before what makes an engine grow, and what one line alone needs is closed early.
ALL_LINES = (
    Line("load", (Figure("start to first token", "s", at_most=2.5),), load, once=True),
    Line("memory", (Figure("memory beyond weights and KV", "MB", at_most=400),), memory, once=True),
    Line("single-q4_0", streams_figure(1, 1.0, "single stream, Q4_0"), streams(1), ("q4_0",)),
    Line("single-q8_0", streams_figure(1, 1.1, "single stream, Q8_0"), streams(1), ("q8_0",)),
    Line("single-bf16", streams_figure(1, 1.0, "single stream, bf16"), streams(1), ("bf16",)),
    Line("single-q4_1", streams_figure(1, 1.2, "single stream, Q4_1"), streams(1), ("q4_1", "int4")),
    Line("prefill", (PREFILL_FIGURE,), prefill),
    Line("8", streams_figure(8, 1.3, "8 concurrent 128 / 128"), streams(8)),
    Line("32", streams_figure(32, 1.1, "32 concurrent 128 / 128"), streams(32)),
    Line("first", FIRST_TOKEN, first_token),
    Line("shared", (SHARED,), shared),
)
LINES = {line.name: line for line in ALL_LINES}
