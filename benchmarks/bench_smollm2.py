"""SmolLM2 as it is served on a CPU, in each dtype: tokens, perplexity, memory and speed in one table.

    python benchmarks/bench_smollm2.py [--dtypes float32,bfloat16] [--windows 8] [--rounds 3]

The weights are those of the GGUF file, whose integers a CPU keeps in either dtype; activations, keys and values have
it. "texts" counts which of the stored greedy answers of transformers in float32 come out the same, "tokens" how many
of theirs until the first that differs. Perplexity is that of the first tokens of NumPy's LICENSE.txt, in windows of
1,024. Memory is what the process has resident more than before it loaded the model, with a KV pool of 4,096 tokens.
Speed: random prompts of 128 tokens, 128 tokens out each, the median of the rounds. Each dtype has a process of its own.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from stopwatch import machine, resident_bytes

from minisgl import LLM, SamplingParams

CASES = Path(__file__).parents[1] / "tests/data/smollm2_greedy.json"
WINDOW = 1024
POOL_TOKENS = 4096
NUM_STREAMS = (1, 8)


def measure(dtype: str, num_windows: int, rounds: int) -> dict[str, Any]:
    before = resident_bytes()
    with LLM("smollm2", dtype=dtype, num_page_override=POOL_TOKENS, max_seq_len_override=2048) as llm:
        memory = resident_bytes() - before
        return {
            **agreement(llm),
            "perplexity": perplexity(llm, num_windows),
            "memory, MB": memory / 1e6,
            **{f"tok/s, {count} at once": speed(llm, count, rounds) for count in NUM_STREAMS},
        }


def agreement(llm: LLM) -> dict[str, str]:
    cases = json.loads(CASES.read_text())
    longest = max(len(case["tokens"]) for case in cases)
    outputs = llm.generate([case["prompt"] for case in cases], SamplingParams(temperature=0, max_tokens=longest))
    expected, found = [case["tokens"] for case in cases], [output["token_ids"] for output in outputs]
    same_texts = sum(map(list.__eq__, expected, found))
    same_tokens = sum(map(common_len, expected, found))
    return {"texts": f"{same_texts}/{len(cases)}", "tokens": f"{same_tokens}/{sum(map(len, expected))}"}


def common_len(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def perplexity(llm: LLM, num_windows: int) -> float:
    text = next(file for file in importlib.metadata.files("numpy") or () if file.name == "LICENSE.txt").read_text()
    ids = llm.tokenizer(text)["input_ids"][: num_windows * WINDOW]
    windows = [ids[start : start + WINDOW] for start in range(0, len(ids), WINDOW)]
    outputs = llm.generate(windows, SamplingParams(max_tokens=0, prompt_logprobs=0))
    logprobs = [entry.logprob for output in outputs for entry in output["prompt_logprobs"] if entry is not None]
    return math.exp(-sum(logprobs) / len(logprobs))


def speed(llm: LLM, count: int, rounds: int) -> float:
    """Output tokens a second of wall time."""
    params, rng = SamplingParams(temperature=0, max_tokens=128, ignore_eos=True), np.random.default_rng(0)
    times = []
    for _ in range(rounds):
        prompts = rng.integers(0, 49_000, (count, 128)).tolist()
        started = perf_counter()
        llm.generate(prompts, params)
        times.append(perf_counter() - started)
    return 128 * count / median(times)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--dtypes", default="float32,bfloat16")
    options.add_argument("--windows", type=int, default=8)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--json", action="store_true", help="measure the one dtype here and print JSON")
    args = options.parse_args()
    if args.json:
        print(json.dumps(measure(args.dtypes, args.windows, args.rounds)))
        return
    results = {}
    for dtype in args.dtypes.split(","):
        numbers = ["--windows", str(args.windows), "--rounds", str(args.rounds)]
        command = [sys.executable, __file__, "--json", "--dtypes", dtype, *numbers]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        results[dtype] = json.loads(done.stdout.splitlines()[-1])
    table = Table(title=f"SmolLM2-135M-Instruct, Q4_1: {machine()}", title_justify="left")
    table.add_column("")
    for dtype in results:
        table.add_column(dtype, justify="right")
    for name in next(iter(results.values())):
        table.add_row(name, *(show(result[name]) for result in results.values()))
    Console(width=120).print(table)


def show(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


if __name__ == "__main__":
    main()
