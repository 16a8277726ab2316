"""Tokens per second of the whole engine beside transformers' `generate`, in one run, the same prompts for both.

    python benchmarks/bench_offline.py                      # every line, both dtypes: about 25 minutes on 2 cores
    python benchmarks/bench_offline.py --lines single,prefill --dtypes float32 --rounds 5
    python benchmarks/bench_offline.py --no-peer            # only ours

SmolLM2-135M, random token ids, greedy, end tokens ignored; wall time from submission to the last token. Every round has
other ids, so that nothing is cached from the round before, and the engines take turns within a round. Each lives in a
process of its own: the OpenMP threads of two in one process would take the cores from each other.
`minisgl bench offline` measures ours alone, with any model and options; here two engines take turns at several lines.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from minisgl import LLM, SamplingParams
from minisgl.cli.bench.offline import Prompts, random_ids
from minisgl.utils.hardware import find_hardware
from minisgl.utils.model_store import resolve_model

VOCAB = 49_000


@dataclass(frozen=True)
class Line:
    """prompts: made from a random generator. out: tokens generated for each. counts: which tokens the rate counts."""

    title: str
    make: Callable[[np.random.Generator], Prompts]
    out: int
    counts: str
    target: dict[str, float]
    rounds: int = 3


def random_prompts(num: int, length: int) -> Callable[[np.random.Generator], Prompts]:
    return lambda rng: random_ids(rng, VOCAB, num, length)


def shared_system(rng: np.random.Generator) -> Prompts:
    (system,) = random_ids(rng, VOCAB, 1, 1000)
    return [system + question for question in random_ids(rng, VOCAB, 32, 30)]


LINES = {
    "single": Line("single stream 128 / 128", random_prompts(1, 128), 128, "out", {"float32": 1.5, "bfloat16": 1.5}),
    "prefill": Line("prefill of 1,024", random_prompts(1, 1024), 1, "in", {"float32": 1.0, "bfloat16": 1.0}),
    "8": Line("8 concurrent 128 / 128", random_prompts(8, 128), 128, "out", {"float32": 1.0, "bfloat16": 1.0}),
    "32": Line("32 concurrent 128 / 128", random_prompts(32, 128), 128, "out", {"float32": 1.3, "bfloat16": 2.5}),
    "shared": Line(
        "1,000 shared + 32 x 30, 32 out", shared_system, 32, "out", {"float32": 1.0, "bfloat16": 6.0}, rounds=1
    ),
}


class Ours:
    name = "minisgl"

    def __init__(self, dtype: str) -> None:
        self.llm = LLM("smollm2", dtype=dtype, num_page_override=65_536, max_seq_len_override=2048)

    def run(self, prompts: Prompts, out: int) -> None:
        outputs = self.llm.generate(prompts, SamplingParams(max_tokens=out, ignore_eos=True))
        assert all(len(output["token_ids"]) == out for output in outputs)


class Transformers:
    name = "transformers"

    def __init__(self, dtype: str) -> None:
        from transformers import AutoModelForCausalLM

        gguf = resolve_model("smollm2")
        self.model: Any = AutoModelForCausalLM.from_pretrained(
            str(gguf.parent), gguf_file=gguf.name, dtype=getattr(torch, dtype)
        )

    @torch.inference_mode()
    def run(self, prompts: Prompts, out: int) -> None:
        ids = torch.tensor(prompts)
        output = self.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            min_new_tokens=out,
            max_new_tokens=out,
            pad_token_id=0,
        )
        assert output.shape[1] == ids.shape[1] + out


ENGINES = {engine.name: engine for engine in (Ours, Transformers)}


class Remote:
    """An engine in a process of its own, which takes prompts and gives seconds, both as lines of JSON."""

    def __init__(self, name: str, dtype: str) -> None:
        self.name = name
        command = [sys.executable, __file__, "--serve", name, "--dtypes", dtype]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.run([[5] * 16] * 2, 4)  # loads and warms up

    def run(self, prompts: Prompts, out: int) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([prompts, out]), file=self._process.stdin, flush=True)
        return float(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def serve(name: str, dtype: str) -> None:
    """The other end of `Remote`."""
    engine = ENGINES[name](dtype)
    for line in sys.stdin:
        prompts, out = json.loads(line)
        begin = time.perf_counter()
        engine.run(prompts, out)
        print(time.perf_counter() - begin, flush=True)


def measure(line: Line, engines: list[Remote], rounds: int, seed: int) -> dict[str, float]:
    """Median tokens per second of each engine, by name."""
    seconds: dict[str, list[float]] = {engine.name: [] for engine in engines}
    for round_ in range(rounds):
        prompts = line.make(np.random.default_rng([seed, round_]))
        for engine in engines:
            seconds[engine.name].append(engine.run(prompts, line.out))
    tokens = sum(len(p) for p in prompts) if line.counts == "in" else len(prompts) * line.out
    return {name: tokens / statistics.median(times) for name, times in seconds.items()}


def main() -> None:
    args = parse_args()
    if args.serve:
        serve(args.serve, args.dtypes)
        return
    results = []
    for dtype in args.dtypes.split(","):
        engines = [Remote(name, dtype) for name in ENGINES if not (args.no_peer and name == Transformers.name)]
        for name in args.lines.split(","):
            line = LINES[name]
            rates = measure(line, engines, args.rounds or line.rounds, seed=args.seed)
            results.append({"line": name, "title": line.title, "dtype": dtype, "target": line.target[dtype], **rates})
            print_result(results[-1])
        for engine in engines:
            engine.close()
    Console().print(table(results))
    if args.json:
        args.json.write_text(json.dumps({"machine": machine(), "results": results}, indent=1))


def print_result(result: dict[str, Any]) -> None:
    print({key: round(v, 1) if isinstance(v, float) else v for key, v in result.items()}, flush=True)


def table(results: list[dict[str, Any]]) -> Table:
    out = Table("line", "dtype", "minisgl tok/s", "transformers tok/s", "ratio", "target", title=machine())
    for result in results:
        peer = result.get("transformers")
        ratio = f"{result['minisgl'] / peer:.2f}x" if peer else "-"
        rates = (f"{result['minisgl']:.1f}", f"{peer:.1f}" if peer else "-")
        out.add_row(result["title"], result["dtype"], *rates, ratio, f"{result['target']}x")
    return out


def machine() -> str:
    hardware = find_hardware()
    versions = f"torch {torch.__version__}, Python {platform.python_version()}"
    return f"{hardware.cpu_name}, {hardware.num_cores} cores, {versions}"


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", default=",".join(LINES), help="which lines, of " + ", ".join(LINES))
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--rounds", type=int, help="rounds a line (default: 3; 1 for the slowest)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", choices=ENGINES, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
