"""What shared prefixes bring: radix against naive, and attention that reads a shared prefix once against plain.

    python benchmarks/gpu/bench_prefix.py [LINE ...] --model qwen3-8b     # system, chats, few-shot, attention

system: 32 system prompts of 1,950 tokens with 32 questions of 50 each, 64 tokens out, in random order. chats: 64
conversations behind one system prompt of 500 tokens, 6 turns of 200 tokens in and 100 out. few-shot: a tree of 500
tokens, 8 x 1,000 below it, 32 x 100 below each, 16 out. attention: 256 requests that share 8,192 tokens and have 256
of their own; the median decode step with shared-prefix attention off and on, and the last one by the engine alone.
"least" is what must be computed if every prefix is computed once. --scale 0.25 takes a quarter of the groups for
naive, which computes everything (rates are a second, so they compare).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import harness
import numpy as np
import report
import workloads
from floors import common_len, least_prefill_tokens

from minisgl import LLM


@dataclass(frozen=True)
class Sizes:
    """What the lines are made of; small ones for a trial run."""

    system: tuple[int, int, int, int, int] = (32, 32, 1950, 50, 64)  # groups, questions, shared, own, out
    chats: tuple[int, int, int, int, int] = (64, 6, 500, 200, 100)  # chats, turns, system, question, out
    few_shot: tuple[tuple[int, ...], tuple[int, ...], int] = ((500, 1000, 100), (8, 32), 16)  # lens, fans, out
    attention: tuple[int, int, int, int] = (256, 8192, 256, 48)  # requests, shared, own, out
    max_running: int = 256


REAL = Sizes()
TRIAL = Sizes((3, 4, 60, 6, 4), (3, 2, 40, 8, 4), ((20, 20, 5), (2, 3), 4), (6, 64, 8, 6), max_running=16)


def run_system(llm: LLM, sizes: Sizes, share: float, ids: int) -> dict[str, Any]:
    groups, *rest = sizes.system
    made = workloads.shared_system(np.random.default_rng(0), max(1, round(share * groups)), *rest, num_ids=ids)
    return run_once(llm, made)


def run_few_shot(llm: LLM, sizes: Sizes, share: float, ids: int) -> dict[str, Any]:
    lens, (blocks, *fans), out = sizes.few_shot
    blocks = max(1, round(share * blocks))
    return run_once(llm, workloads.few_shot(np.random.default_rng(1), lens, (blocks, *fans), out, ids))


def run_once(llm: LLM, workload: workloads.Workload) -> dict[str, Any]:
    before = llm.stats()["computed_tokens"]
    seconds, _ = harness.run(llm, workload)
    computed = llm.stats()["computed_tokens"] - before
    return result(len(workload.prompts), seconds, computed, least_prefill_tokens(workload.prompts))


def run_chats(llm: LLM, sizes: Sizes, share: float, ids: int) -> dict[str, Any]:
    """All chats ask at the same time, and again when all are answered."""
    num_chats, turns, system, question, out = sizes.chats
    num_chats = max(1, round(share * num_chats))
    chats = workloads.Chats(np.random.default_rng(2), num_chats, system, question, out, ids)
    before, least, said = llm.stats()["computed_tokens"], 0, list[workloads.Prompt]()
    working = 0.0
    for _ in range(turns):
        turn = chats.next_turn()
        least += least_of_turn(turn.prompts, said)
        seconds, answers = harness.run(llm, turn)
        working += seconds
        chats.answered(answers)
        said = [history[:-1] for history in chats.histories]  # the last token was never an input
    return result(num_chats * turns, working, llm.stats()["computed_tokens"] - before, least)


def least_of_turn(prompts: list[workloads.Prompt], said: list[workloads.Prompt]) -> int:
    """Tokens past what was said before, or in the first turn past what others say too."""
    if not said:
        return least_prefill_tokens(prompts)
    return sum(len(prompt) - common_len(prompt, old) for prompt, old in zip(prompts, said, strict=True))


def result(num_requests: int, seconds: float, computed: int, least: int) -> dict[str, Any]:
    return {
        "requests": num_requests,
        "seconds": seconds,
        "requests/s": num_requests / seconds,
        "computed": computed,
        "least": least,
        "computed / least": computed / least,
    }


LINES: dict[str, Callable[[LLM, Sizes, float, int], dict[str, Any]]] = {
    "system": run_system,
    "chats": run_chats,
    "few-shot": run_few_shot,
}


def compare_caches(names: list[str], sizes: Sizes, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Every line with a radix cache and with none, each from an empty one."""
    config = {"max_running_req": sizes.max_running, "max_seq_len_override": 4096} | harness.engine_config(args)
    results = []
    for cache_type in ("radix", "naive"):
        share = args.scale if cache_type == "naive" else 1.0
        with harness.open_llm(args.model, cache_type=cache_type, **config) as llm:
            for name in names:
                llm.purge_cache(cache_salt=None)
                figures = LINES[name](llm, sizes, share, harness.num_ids(args.model))
                results.append({"line": name, "cache": cache_type, **figures})
    return results


def compare_attention(sizes: Sizes, args: argparse.Namespace) -> list[dict[str, Any]]:
    """The same requests with shared-prefix attention off and on; times in ms."""
    num_reqs, shared, own, out = sizes.attention
    ids = harness.num_ids(args.model)
    made = workloads.shared_system(np.random.default_rng(3), 1, num_reqs, shared, own, out, num_ids=ids)
    floors = harness.floors_of(args.model)
    length = max(shared + own + out, harness.MIN_CONTEXT)
    config = {"max_running_req": num_reqs, "max_seq_len_override": length} | harness.engine_config(args)
    results = []
    for setting in ("off", "auto"):
        with (
            harness.open_llm(args.model, **(config | {"shared_prefix": setting})) as llm,
            harness.StepLog().watch(llm) as log,
        ):
            seconds, _ = harness.run(llm, made)
            engine_s = harness.replay_s(llm, log.last_decode[num_reqs], out)
        own_tokens = num_reqs * (own + out // 2)
        read = shared + own_tokens if setting == "auto" else num_reqs * shared + own_tokens
        results.append(
            {
                "shared_prefix": setting,
                "step ms": median(log.decode_s(num_reqs)) * 1e3,
                "engine ms": engine_s * 1e3,
                "floor ms": floors.decode_step_s(num_reqs, read) * 1e3,
                "seconds": seconds,
            }
        )
    return results


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    args = parse_args(argv)
    names = args.lines or [*LINES, "attention"]
    sizes = TRIAL if args.model == "tiny" else REAL
    cached = [name for name in names if name in LINES]
    results = compare_caches(cached, sizes, args) if cached else []
    if results:
        show(f"{args.model}, radix against naive: {report.machine()}", results)
    if "attention" in names:
        compared = compare_attention(sizes, args)
        num_reqs, shared, own, _ = sizes.attention
        show(f"{args.model}, decode of {num_reqs} x ({shared:,} shared + {own} own): {report.machine()}", compared)
        results += compared
    report.write_json(args.json, args, results)
    return results


def show(title: str, results: list[dict[str, Any]]) -> None:
    report.table(title, tuple(results[0]), [tuple(result.values()) for result in results])


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    parser = harness.parser(__doc__, model="qwen3-8b")
    parser.add_argument(
        "lines", nargs="*", metavar="LINE", choices=[[], *LINES, "attention"], help="all if none is named"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="share of the groups that naive gets (1.0)")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
