"""How long a model takes to load, and what it holds meanwhile, beside reading the same files and nothing else.

    python benchmarks/bench_loading.py                     # every line, 1 GB each: some 5 minutes on 2 cores
    python benchmarks/bench_loading.py --lines f32 --rounds 9
    python benchmarks/bench_loading.py --folder DIR        # keeps the checkpoints there for the next run

The checkpoints are random, in four shards where they are safetensors. Every load has a process of its own, begins when
all is imported, and finds the files in the page cache; the two sides take turns. "reading" is safetensors alone: every
tensor of every file comes into memory (of GGUF, the file's bytes do). Memory is what the process has resident, less
what it had before: "weights" at the end, "beyond" is by how much the peak was more than that.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from random_checkpoints import write_gguf, write_safetensors
from rich.console import Console
from rich.table import Table
from safetensors import safe_open
from stopwatch import machine

from minisgl.distributed import TPInfo
from minisgl.kernel import has_cpp
from minisgl.models import ModelConfig, load_model, open_checkpoint

MB = 1e6
NUM_SHARDS = 4
KINDS = {"f32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Line:
    """kind: of the checkpoint's numbers, one of KINDS or ggml's name. experts: of a GGUF file."""

    title: str
    kind: str
    dtype: str
    ranks: int = 1
    experts: bool = False

    @property
    def file(self) -> str:
        return self.kind if self.kind in KINDS else f"{self.kind}{'-experts' if self.experts else ''}.gguf"


LINES = {
    "f32": Line("float32 to float32", "f32", "float32"),
    "bf16": Line("bfloat16 to bfloat16", "bf16", "bfloat16"),
    "bf16-f32": Line("bfloat16 to float32", "bf16", "float32"),
    "f32-bf16": Line("float32 to bfloat16", "f32", "bfloat16"),
    "f32-tp2": Line("float32 to float32, 2 ranks", "f32", "float32", ranks=2),
    "bf16-tp2": Line("bfloat16 to bfloat16, 2 ranks", "bf16", "bfloat16", ranks=2),
    "f16": Line("GGUF F16 to float32", "F16", "float32"),
    "q8": Line("GGUF Q8_0 to bfloat16", "Q8_0", "bfloat16"),
    "q4": Line("GGUF Q4_1 to bfloat16", "Q4_1", "bfloat16"),
    "q6": Line("GGUF Q6_K to bfloat16", "Q6_K", "bfloat16"),
    "q4-experts": Line("GGUF Q4_1 experts to bfloat16", "Q4_1", "bfloat16", experts=True),
}


# ---- in a process of its own


def read_alone(path: Path) -> Any:
    """Every tensor in memory, and nothing done with it."""
    if path.is_file():
        return path.read_bytes()
    tensors = {}
    for file in sorted(path.glob("*.safetensors")):
        with safe_open(file, framework="pt") as handle:
            for name in handle.offset_keys():
                tensors[name] = handle.get_tensor(name).clone()
    return tensors


def load(path: Path, dtype: torch.dtype, tp: TPInfo) -> Any:
    checkpoint = open_checkpoint(path)
    config = ModelConfig.from_hf(checkpoint.hf_config())
    return load_model(checkpoint, config, dtype, torch.device("cpu"), tp)


def measure(work: Callable[[], Any]) -> dict[str, float]:
    """Seconds, and MB resident after and at the peak, less what was resident before."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
    before, begin = resident("VmRSS"), time.perf_counter()
    result = work()
    seconds = time.perf_counter() - begin
    after, peak = resident("VmRSS") - before, resident("VmHWM") - before
    del result
    return {"seconds": seconds, "after": after, "peak": peak}


def resident(key: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 / MB for line in lines if line.startswith(f"{key}:"))


def child(args: argparse.Namespace) -> None:
    """The other end of `run`: begins when a line comes."""
    torch.set_num_threads(max(1, torch.get_num_threads() // args.of))
    has_cpp(torch.ones(1 << 20).clone())
    input()
    tp = TPInfo(args.rank, args.of)
    dtype = getattr(torch, args.dtype)
    work = (lambda: read_alone(args.child)) if args.alone else (lambda: load(args.child, dtype, tp))
    print(json.dumps(measure(work)))


# ---- in the process that asks


def run(path: Path, line: Line, alone: bool) -> dict[str, float]:
    """The slowest and the largest of the ranks, all at once; reading is the work of one process."""
    size = 1 if alone else line.ranks
    options = ["--child", str(path), "--dtype", line.dtype, "--of", str(size), *(["--alone"] if alone else [])]
    command = [sys.executable, __file__, *options]
    ranks = [
        subprocess.Popen([*command, "--rank", str(rank)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for rank in range(size)
    ]
    time.sleep(8 if size > 1 else 0)  # until all have imported
    for rank in ranks:
        assert rank.stdin is not None
        rank.stdin.write("\n")
        rank.stdin.flush()
    results = [json.loads(rank.communicate()[0]) for rank in ranks]
    return {key: max(result[key] for result in results) for key in results[0]}


def compare(path: Path, line: Line, rounds: int) -> dict[str, float]:
    """Medians, in turns."""
    warm_cache(path)
    reads, loads = [], []
    for _ in range(rounds):
        reads.append(run(path, line, alone=True))
        loads.append(run(path, line, alone=False))
    return {
        "reading": statistics.median(result["seconds"] for result in reads),
        "loading": statistics.median(result["seconds"] for result in loads),
        "ratio": statistics.median(
            ours["seconds"] / alone["seconds"] for ours, alone in zip(loads, reads, strict=True)
        ),
        "weights": statistics.median(result["after"] for result in loads),
        "beyond": statistics.median(result["peak"] - result["after"] for result in loads),
    }


def files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(path.iterdir())


def warm_cache(path: Path) -> None:
    for file in files(path):
        with file.open("rb") as stream:
            while stream.read(1 << 24):
                pass


def make(line: Line, folder: Path, num_bytes: int) -> Path:
    path = folder / line.file
    if not path.exists():
        if line.kind in KINDS:
            write_safetensors(path, KINDS[line.kind], num_bytes, NUM_SHARDS)
        else:
            write_gguf(path, line.kind, num_bytes, line.experts)
    return path


def main() -> None:
    args = parse_args()
    if args.child:
        child(args)
        return
    table = Table("checkpoint", "MB", "reading, s", "loading, s", "ratio", "weights, MB", "beyond, MB", title=machine())
    with tempfile.TemporaryDirectory() as scratch:
        for name in args.lines.split(","):
            line = LINES[name]
            path = make(line, args.folder or Path(scratch), int(args.gb * 1e9))
            size = sum(file.stat().st_size for file in files(path)) / MB
            result = compare(path, line, args.rounds)
            print(name, {key: round(value, 2) for key, value in result.items()}, flush=True)
            numbers = [f"{result[key]:.2f}" for key in ("reading", "loading", "ratio")]
            table.add_row(line.title, f"{size:.0f}", *numbers, f"{result['weights']:.0f}", f"{result['beyond']:.0f}")
    Console().print(table)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", default=",".join(LINES), help=f"some of {', '.join(LINES)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gb", type=float, default=1.0, help="size of each checkpoint")
    parser.add_argument("--folder", type=Path, help="where the checkpoints are kept (default: they are removed)")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--dtype", default="float32", help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--of", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
