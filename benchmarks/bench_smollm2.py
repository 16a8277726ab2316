"""SmolLM2 as it is served on a CPU, by dtype and quantization: tokens, perplexity, memory and speed in two tables.

    python benchmarks/bench_smollm2.py [--runs float32:none,bfloat16:gguf] [--windows 8] [--rounds 3]

The first table has the GGUF file (Q4_1), whose integers a CPU keeps: none multiplies them by floats, gguf by
activations in int8. The second has a checkpoint in float32, for int8 and int4: every weight drawn evenly from the
numbers that round to the file's integer, since there is no other source of floats here. It is a worse model than the
file; what int8 and int4 add to its perplexity is what they cost.

"texts" counts which of the stored greedy answers of transformers in float32 come out the same, "tokens" how many of
theirs until the first that differs. Perplexity is that of the first tokens of NumPy's LICENSE.txt, in windows of 1,024;
"best token" the share of them for which the same token is most likely as in float32:none, and "log-probability off" the
mean distance from that run's. Memory is what the process has resident more than before it loaded the model, with a KV
pool of 4,096 tokens. Speed: random prompts of 128 tokens, 128 tokens out each, the median of the rounds; no rounds, no
speed. Each run has a process of its own.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch
from cpu_models import write_safetensors
from rich.console import Console
from rich.table import Table
from safetensors.torch import save_file
from stopwatch import machine, resident_bytes

from minisgl import LLM, SamplingParams
from minisgl.models.gguf_checkpoint import GGUFCheckpoint
from minisgl.utils.grouped_tensor import GROUP, GroupedTensor, dense
from minisgl.utils.model_store import resolve_model

CASES = Path(__file__).parents[1] / "tests/data/smollm2_greedy.json"
WINDOW = 1024
POOL_TOKENS = 4096
NUM_STREAMS = (1, 8)
FILE, FLOATS = "SmolLM2-135M-Instruct, Q4_1", "the same, as a checkpoint in float32"
RUNS = {
    FILE: ("float32:none", "float32:gguf", "bfloat16:none", "bfloat16:gguf"),
    FLOATS: tuple(
        f"{dtype}:{quantization}" for dtype in ("float32", "bfloat16") for quantization in ("none", "int8", "int4")
    ),
}


def measure(model: str, dtype: str, quantization: str, num_windows: int, rounds: int) -> dict[str, Any]:
    before = resident_bytes()
    sizes = {"num_page_override": POOL_TOKENS, "max_seq_len_override": 2048}
    with LLM(model, dtype=dtype, quantization=quantization, **sizes) as llm:
        memory = resident_bytes() - before
        speeds = {f"tok/s, {count} at once": speed(llm, count, rounds) for count in NUM_STREAMS} if rounds else {}
        return {
            **(agreement(llm) if model == "smollm2" else {}),
            **score(llm, num_windows),
            "memory, MB": memory / 1e6,
            **speeds,
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


def score(llm: LLM, num_windows: int) -> dict[str, Any]:
    """Perplexity, and for `compare` the log-probability of every token and the token that was most likely there."""
    text = next(file for file in importlib.metadata.files("numpy") or () if file.name == "LICENSE.txt").read_text()
    ids = llm.tokenizer(text)["input_ids"][: num_windows * WINDOW]
    windows = [ids[start : start + WINDOW] for start in range(0, len(ids), WINDOW)]
    outputs = llm.generate(windows, SamplingParams(max_tokens=0, prompt_logprobs=1))
    entries = [entry for output in outputs for entry in output["prompt_logprobs"] if entry is not None]
    logprobs = [entry.logprob for entry in entries]
    best = [entry.top[0][0] for entry in entries]
    return {"perplexity": math.exp(-sum(logprobs) / len(logprobs)), "logprobs": logprobs, "best": best}


def compare(result: dict[str, Any], reference: dict[str, Any]) -> dict[str, Any]:
    logprobs, best = (np.array(result.pop(name)) for name in ("logprobs", "best"))
    return result | {
        "perplexity, %": f"{100 * (result['perplexity'] / reference['perplexity'] - 1):+.2f}",
        "best token, %": f"{100 * (best == np.array(reference['best'])).mean():.2f}",
        "log-probability off": f"{np.abs(logprobs - np.array(reference['logprobs'])).mean():.4f}",
    }


def write_floats(folder: Path) -> None:
    """A checkpoint of which the file could have been made."""
    write_safetensors(resolve_model("smollm2"), folder)
    generator, tensors = torch.Generator().manual_seed(0), {}
    for name, tensor in GGUFCheckpoint(resolve_model("smollm2")).iter_weights():
        values = dense(tensor)
        if isinstance(tensor, GroupedTensor):
            step = tensor.scale.repeat_interleave(GROUP, dim=1)
            values = values + (torch.rand(values.shape, generator=generator) - 0.5) * step
        tensors[name] = values.float().contiguous()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


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
    options.add_argument("--runs", help="of those below, as dtype:quantization (default: all)")
    options.add_argument("--windows", type=int, default=8)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--one", help="model to measure here, in the one run; prints JSON")
    args = options.parse_args()
    if args.one:
        dtype, quantization = args.runs.split(":")
        print(json.dumps(measure(args.one, dtype, quantization, args.windows, args.rounds)))
        return
    wanted = set(args.runs.split(",")) if args.runs else {run for runs in RUNS.values() for run in runs}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "floats"
        for title, runs in RUNS.items():
            chosen = [run for run in runs if run in wanted]
            if title == FLOATS and chosen:
                write_floats(folder)
            results = {run: measure_apart(str(folder) if title == FLOATS else "smollm2", run, args) for run in chosen}
            if results:
                print_table(title, results)


def measure_apart(model: str, run: str, args: argparse.Namespace) -> dict[str, Any]:
    numbers = ["--windows", str(args.windows), "--rounds", str(args.rounds)]
    command = [sys.executable, __file__, "--one", model, "--runs", run, *numbers]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def print_table(title: str, results: dict[str, dict[str, Any]]) -> None:
    """Compared with the first run."""
    reference = dict(next(iter(results.values())))
    compared = {run: compare(result, reference) for run, result in results.items()}
    table = Table(title=f"{title}: {machine()}", title_justify="left")
    table.add_column("")
    for run in compared:
        table.add_column(run, justify="right")
    for name in next(iter(compared.values())):
        table.add_row(name, *(show(result[name]) for result in compared.values()))
    Console(width=140).print(table)


def show(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


if __name__ == "__main__":
    main()
