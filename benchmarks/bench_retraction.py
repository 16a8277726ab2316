"""Throughput of optimistic admission (`reserve="estimate"`) beside `reserve="full"` on a small pool, the same texts.

    python benchmarks/bench_retraction.py                   # about 3 minutes on 2 free cores
    python benchmarks/bench_retraction.py --streams 16 --json result.json

SmolLM2-135M in float32, sampled with seeds. Every stream may generate 256 tokens, but ends sooner: lengths are
log-normal, with median 20 in the first half of the streams and 60 in the second, so that what was learned is too
little and pages run out. A run with room for all gives the texts; in the measured runs each stream has a token of its
own that ends it where its length is reached, so the scheduler cannot know. The pool holds a quarter of the tokens that
all streams have at their ends. Wall time from submission to the last token, in turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from stopwatch import machine

from minisgl import LLM, SamplingParams

PROMPT_LEN, MAX_TOKENS = 32, 256
MEDIAN_LENS = 20, 60  # of outputs, in the first and the second half
VOCAB = 49_000
TARGET = 1.5


@dataclass(frozen=True)
class Streams:
    """texts: what each must generate, its ending token included, which occurs in it nowhere else."""

    prompts: list[list[int]]
    texts: list[list[int]]

    @property
    def num_generated(self) -> int:
        return sum(len(text) for text in self.texts)

    @property
    def num_tokens(self) -> int:
        """That all have at their ends."""
        return self.num_generated + sum(len(prompt) for prompt in self.prompts)

    @property
    def params(self) -> list[SamplingParams]:
        return [sampled(seed, MAX_TOKENS, stop_token_ids=[text[-1]]) for seed, text in enumerate(self.texts)]


def sampled(seed: int, max_tokens: int, **params: Any) -> SamplingParams:
    return SamplingParams(temperature=1.0, seed=seed, max_tokens=max_tokens, ignore_eos=True, **params)


def make_streams(num_streams: int, seed: int) -> Streams:
    """Random prompts, and what is generated for them with room for all."""
    rng = np.random.default_rng(seed)
    prompts = rng.integers(3, VOCAB, (num_streams, PROMPT_LEN)).tolist()
    medians = np.where(np.arange(num_streams) < num_streams // 2, *MEDIAN_LENS)
    lengths = np.clip(np.exp(rng.normal(np.log(medians), 0.5)), 4, MAX_TOKENS - 6).astype(int)
    with make_llm(num_streams * (PROMPT_LEN + MAX_TOKENS), num_streams, "full") as llm:
        params = [sampled(seed, int(length)) for seed, length in enumerate(lengths)]
        outputs = llm.generate(prompts, params)
    return Streams(prompts, [up_to_a_new_token(output["token_ids"]) for output in outputs])


def up_to_a_new_token(text: list[int]) -> list[int]:
    """`text` cut after the last token that occurs there for the first time."""
    last = max(text.index(token) for token in set(text))
    return text[: last + 1]


def make_llm(num_pages: int, num_streams: int, reserve: str) -> LLM:
    return LLM(
        "smollm2",
        dtype="float32",
        num_page_override=num_pages,
        max_seq_len_override=PROMPT_LEN + MAX_TOKENS,
        max_running_req=num_streams,
        reserve=reserve,
    )


def measure(streams: Streams, num_pages: int, reserve: str) -> dict[str, Any]:
    """One cold run; AssertionError when a text is not what it must be."""
    with make_llm(num_pages, len(streams.prompts), reserve) as llm:
        begin = time.perf_counter()
        outputs = llm.generate(streams.prompts, streams.params)
        seconds = time.perf_counter() - begin
        stats = llm._worker.parts.scheduler.stats()
    different = sum(output["token_ids"] != text for output, text in zip(outputs, streams.texts, strict=True))
    assert different == 0, f"{different} of {len(outputs)} texts differ from those of a run with room for all"
    return {
        "reserve": reserve,
        "tokens_per_s": streams.num_generated / seconds,
        "batches": stats.num_batches,
        "retracted": stats.num_retracted,
        "computed_again": stats.computed_tokens - len(streams.prompts) * PROMPT_LEN,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    streams = make_streams(args.streams, args.seed)
    num_pages = streams.num_tokens // 4
    runs = [measure(streams, num_pages, reserve) for _ in range(args.rounds) for reserve in ("full", "estimate")]
    ratio = median_rate(runs, "estimate") / median_rate(runs, "full")
    Console().print(
        table(runs, f"{args.streams} streams, pool {num_pages} of {streams.num_tokens} tokens; {machine()}")
    )
    print(f"estimate / full: {ratio:.2f}x (target {TARGET}x)")
    if args.json:
        args.json.write_text(json.dumps({"machine": machine(), "ratio": ratio, "runs": runs}, indent=1))


def median_rate(runs: list[dict[str, Any]], reserve: str) -> float:
    return statistics.median([float(run["tokens_per_s"]) for run in runs if run["reserve"] == reserve])


def table(runs: list[dict[str, Any]], title: str) -> Table:
    out = Table(*runs[0], title=title)
    for run in runs:
        out.add_row(*(f"{value:.1f}" if isinstance(value, float) else str(value) for value in run.values()))
    return out


if __name__ == "__main__":
    main()
