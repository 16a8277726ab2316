"""What the HTTP process costs and adds, at a thousand streams of 20 tokens a second, beside FastAPI in the same run.

    python benchmarks/bench_http.py                       # both servers, about a minute
    python benchmarks/bench_http.py --streams 200 --tokens 100 --groups 10 --servers ours

Three processes each time: a fake engine that speaks the real protocol (`http_fake_engine.py`), the HTTP process
(`http_servers.py`), and the clients (`http_readers.py`), whose time does not count. Every stream is checked for its
text, its order and its end. CPU time is what the system counts for the HTTP process, all its threads, from the first
token sent to the last; the kernel's part is mostly the writes to the sockets, which on the loopback device do the
receiver's half of the work too. Added latency is from the moment when the engine sends a token to the moment when a
client has it. FastAPI comes with the extra `bench`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from http_fake_engine import FIRST_ID, Plan
from rich.console import Console
from rich.table import Table
from stopwatch import machine

from minisgl.tokenizer import load_tokenizer
from minisgl.utils.model_store import resolve_model

HERE = Path(__file__).parent
TICKS = os.sysconf("SC_CLK_TCK")
NUM_WORDS = 97  # different tokens, so that one that is lost or comes twice is noticed
TARGET_US, GOAL_US, TARGET_RATIO = 50, 30, 0.5


@dataclass
class CpuLog:
    """CPU seconds of a process, noted ten times a second until `stop`: (when, all of it, the kernel's part)."""

    pid: int
    samples: list[tuple[float, float, float]] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.stop.wait(0.1):
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
            user_s, kernel_s = int(fields[11]) / TICKS, int(fields[12]) / TICKS
            self.samples.append((time.monotonic(), user_s + kernel_s, kernel_s))

    def between(self, start: float, end: float) -> tuple[float, float]:
        """CPU seconds in this time, and how many of them were the kernel's."""
        times, *columns = zip(*self.samples, strict=True)
        total, kernel = (float(np.interp(end, times, c) - np.interp(start, times, c)) for c in columns)
        return total, kernel


def words() -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Token ids of SmolLM2 whose texts are plain words of several letters, and the texts."""
    tokenizer = load_tokenizer(resolve_model("smollm2"))
    texts = {token_id: tokenizer.decode([token_id]) for token_id in range(1000, 3000)}
    chosen = [
        token_id for token_id, text in texts.items() if text[0] == " " and text[1:].isascii() and text[1:].isalpha()
    ]
    ids = tuple(chosen[:NUM_WORDS])
    return ids, tuple(texts[token_id] for token_id in ids)


def measure(name: str, plan: Plan, texts: tuple[str, ...]) -> dict[str, Any]:
    """One server, one run."""
    with tempfile.TemporaryDirectory() as folder, running_server(name, plan) as (url, process):
        cpu = CpuLog(process.pid)
        thread = threading.Thread(target=cpu.run)
        thread.start()
        began = time.monotonic()
        said = run_readers(url, plan, texts, Path(folder) / "arrived.npy")
        ended = time.monotonic()
        cpu.stop.set()
        thread.join()
        arrived = np.load(Path(folder) / "arrived.npy")
    if said["errors"] and not Path(plan.times_file).exists():
        raise RuntimeError(f"{name}: not all streams began: {said['errors'][:3]}")
    sent = np.load(plan.times_file)
    start, end = float(sent.min()), float(arrived.max())
    added_ms = (arrived - sent).ravel() * 1e3
    cpu_s, kernel_s = cpu.between(start, end)
    return {
        "server": name,
        "errors": said["errors"][:5],
        "num_errors": len(said["errors"]),
        "num_tokens": int(sent.size),
        "tokens_per_write": sent.size / said["num_parts"],
        "cpu_us_per_token": cpu_s / sent.size * 1e6,
        "kernel_us_per_token": kernel_s / sent.size * 1e6,
        "cpu_us_per_token_with_requests": cpu.between(began, ended)[0] / sent.size * 1e6,
        "cores": cpu_s / (end - start),
        "added_ms": {f"p{p}": float(np.percentile(added_ms, p)) for p in (50, 90, 99)} | {"max": float(added_ms.max())},
    }


@contextlib.contextmanager
def running_server(name: str, plan: Plan) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environ = os.environ | {"FAKE_ENGINE_PLAN": json.dumps(asdict(plan)), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, HERE / "http_servers.py", name, str(port)], env=environ)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until_healthy(url, process)
        yield url, process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def wait_until_healthy(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"{url}/health", timeout=5)
            return
        assert process.poll() is None, f"the server ended with {process.returncode}"
        time.sleep(0.1)
    raise AssertionError("the server does not get ready")


def run_readers(url: str, plan: Plan, texts: tuple[str, ...], file: Path) -> dict[str, Any]:
    body = {"model": "smollm2", "max_tokens": plan.num_tokens, "temperature": 0, "ignore_eos": True, "stream": True}
    asked = {
        "num": plan.num_streams,
        "first_id": FIRST_ID,
        "body": body,
        "texts": [texts[step % len(texts)] for step in range(plan.num_tokens)],
    }
    command = [sys.executable, HERE / "http_readers.py", url, json.dumps(asked), file]
    said: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return said


def table(results: list[dict[str, Any]], title: str) -> Table:
    out = Table(title=title, title_justify="left")
    for column in (
        "server",
        "broken streams",
        "CPU us/token",
        "in the kernel",
        "with requests",
        "cores",
        "tokens/write",
    ):
        out.add_column(column)
    for key in results[0]["added_ms"]:
        out.add_column(f"added {key}, ms")
    for result in results:
        out.add_row(
            result["server"],
            str(result["num_errors"]),
            f"{result['cpu_us_per_token']:.1f}",
            f"{result['kernel_us_per_token']:.1f}",
            f"{result['cpu_us_per_token_with_requests']:.1f}",
            f"{result['cores']:.2f}",
            f"{result['tokens_per_write']:.2f}",
            *(f"{value:.1f}" for value in result["added_ms"].values()),
        )
    return out


def verdict(results: list[dict[str, Any]]) -> str:
    cost = {result["server"]: result["cpu_us_per_token"] for result in results}
    words = [f"target {TARGET_US} us, goal {GOAL_US} us a token"]
    if "ours" in cost and "naive" in cost:
        words.append(f"ours / naive = {cost['ours'] / cost['naive']:.2f}, target below {TARGET_RATIO}")
    return "; ".join(words)


def main() -> None:
    args = parse_args()
    allow_many_files(args.streams)
    token_ids, texts = words()
    results = []
    for name in args.servers.split(","):
        with tempfile.TemporaryDirectory() as folder:
            times_file = str(Path(folder) / "sent.npy")
            plan = Plan(args.streams, args.tokens, 1 / args.rate, args.groups, token_ids, times_file)
            results.append(measure(name, plan, texts))
        print(results[-1], flush=True)
    title = f"{args.streams} streams of {args.rate:g} tokens/s, {args.tokens} each, {args.groups} frames a step"
    Console(width=140).print(table(results, title))
    print(verdict(results), machine(), sep="\n")
    if args.json:
        args.json.write_text(json.dumps({"machine": machine(), "title": title, "results": results}, indent=1) + "\n")
    if any(result["num_errors"] for result in results):
        sys.exit(1)


def allow_many_files(num_streams: int) -> None:
    """Each process here has a socket a stream, and inherits this limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = num_streams * 2 + 256
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise ValueError(f"--streams {num_streams} needs {needed} open files; this user may have {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--tokens", type=int, default=300, help="of each stream")
    parser.add_argument("--rate", type=float, default=20.0, help="tokens a second of each stream")
    parser.add_argument("--groups", type=int, default=1, help="frames in which the engine sends the tokens of one step")
    parser.add_argument("--servers", default="ours,naive")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
