"""What it costs to see into a loaded server: two servers take turns, one with all of it and one with nothing.

    python benchmarks/bench_insight.py fake [--parts explain,metrics,page,trace] [--windows 10] [--seconds 5]
    python benchmarks/bench_insight.py real                         # the same with SmolLM2

explain: explanations, what was evicted, and the curve of other pools. metrics: /metrics is read once a second. page:
/inspect/activity and /inspect/tree are, as an open page does. trace: all steps are written to a file. The other server
is started with --no-explain --no-metrics --no-ui, and nobody asks it for anything.

fake: 32 clients, prompts of 1,300 tokens of which 1,000 are one of 40 beginnings (Zipf), 64 tokens out, a pool of
60,000; a step takes what it would on an H200 with a model of 8B, and overlap is on. So tokens a second fall only when
the host takes longer than the device. real: 8 clients, 160 tokens of which 120 are shared, 32 out, a pool of 4,000.

The servers are loaded by turns, in windows; each pair of windows gives a ratio. Medians are shown. "host" is the
engine's own count of its work for a step. CPU time is what the system counts for the two processes of a server.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from stopwatch import machine
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

HERE = Path(__file__).parent
TICKS = os.sysconf("SC_CLK_TCK")
PARTS = ("explain", "metrics", "page", "trace")
OFF = ["--no-explain", "--no-metrics", "--no-ui"]
SETTLE_S = 2.0  # until the answers to the other server's requests are done
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 32_000, "hidden_size": 32,
    "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "tie_word_embeddings": True, "hidden_act": "silu",
    "bos_token_id": 0, "eos_token_id": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Load:
    """Lengths in tokens. shared_len: of one of `num_shared` beginnings that a prompt has."""

    num_clients: int
    num_shared: int
    shared_len: int
    own_len: int
    answer_len: int
    num_pages: int

    def prompts(self, client: int) -> Iterator[list[int]]:
        shared = np.random.default_rng(0).integers(100, 20_000, (self.num_shared, self.shared_len))
        weights = 1 / np.arange(1, self.num_shared + 1)
        rng = np.random.default_rng(client + 1)
        while True:
            which = rng.choice(self.num_shared, p=weights / weights.sum())
            yield [*shared[which].tolist(), *rng.integers(100, 20_000, self.own_len).tolist()]


LOADS = {"fake": Load(32, 40, 1000, 300, 64, 60_000), "real": Load(8, 12, 120, 40, 32, 4000)}


@dataclass(eq=False)
class Server:
    """A running one. asks: what is read of it once a second while it is loaded."""

    name: str
    port: int
    process: subprocess.Popen[bytes]
    asks: list[str]

    def get(self, path: str) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read()
            if response.status != 200:
                raise RuntimeError(f"{self.name}: GET {path}: {response.status} {body[:200]!r}")
            return body

    def counts(self) -> dict[str, float]:
        """Totals until now: seconds, tokens, steps, and CPU seconds of the engine and of the HTTP process."""
        (state,) = json.loads(self.get("/get_server_info"))["internal_states"]
        (engine,) = children(self.process.pid)
        return {
            "time": time.monotonic(),
            "tokens": state["generated_tokens"],
            "steps": state["num_batches"],
            "host": state["host_s"],
            "engine": cpu_s(engine),
            "http": cpu_s(self.process.pid),
        }


class Clients:
    """Threads that keep one server busy, whichever is `target`, each with one request at a time."""

    def __init__(self, load: Load) -> None:
        self.target: Server | None = None
        self.error: Exception | None = None
        self._load = load
        for client in range(load.num_clients):
            threading.Thread(target=self._run, args=(client,), daemon=True).start()
        threading.Thread(target=self._watch, daemon=True).start()

    def _run(self, client: int) -> None:
        prompts = self._load.prompts(client)
        connections: dict[int, http.client.HTTPConnection] = {}
        fields = {"max_tokens": self._load.answer_len, "ignore_eos": True, "temperature": 0}
        while self.error is None:
            if (server := self.target) is None:
                time.sleep(0.05)
                continue
            connection = connections.setdefault(
                server.port, http.client.HTTPConnection("127.0.0.1", server.port, timeout=300)
            )
            try:
                body = json.dumps({"model": "m", "prompt": next(prompts), **fields})
                connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
                response = connection.getresponse()
                answer = response.read()
                if response.status != 200:
                    raise RuntimeError(f"{response.status}: {answer[:300]!r}")
            except Exception as error:
                self.error = error

    def _watch(self) -> None:
        """Read what a page and Prometheus would, once a second."""
        since = 0
        while self.error is None:
            time.sleep(1)
            if (server := self.target) is None:
                continue
            try:
                for path in server.asks:
                    answer = server.get(path.format(since=since))
                    since = json.loads(answer)["next"] if "activity" in path else since
            except Exception as error:
                self.error = error


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()] or [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


@contextlib.contextmanager
def running(name: str, kind: str, flags: list[str], asks: list[str]) -> Iterator[Server]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, HERE / "insight_server.py", kind, *flags, "--port", str(port)]
    environ = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([str(word) for word in command], env=environ, stderr=subprocess.DEVNULL)
    server = Server(name, port, process, asks)
    try:
        wait_until_healthy(server)
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def wait_until_healthy(server: Server) -> None:
    for _ in range(1200):
        with contextlib.suppress(OSError, RuntimeError):
            server.get("/health")
            return
        if server.process.poll() is not None:
            raise RuntimeError(f"{server.name}: the server ended with {server.process.returncode}")
        time.sleep(0.1)
    raise RuntimeError(f"{server.name}: the server does not get ready")


def window(server: Server, clients: Clients, seconds: float) -> dict[str, float]:
    """What it does in so many seconds under load."""
    clients.target = server
    time.sleep(SETTLE_S)
    before = server.counts()
    time.sleep(seconds)
    after = server.counts()
    if clients.error is not None:
        raise clients.error
    change = {name: after[name] - before[name] for name in after}
    return {
        "tokens/s": change["tokens"] / change["time"],
        "host, us/step": change["host"] / change["steps"] * 1e6,
        "engine CPU, us/token": change["engine"] / change["tokens"] * 1e6,
        "HTTP CPU, us/token": change["http"] / change["tokens"] * 1e6,
    }


def measure(on: Server, off: Server, load: Load, num_windows: int, seconds: float) -> list[Mapping[str, Any]]:
    """A record for each quantity."""
    clients = Clients(load)
    pairs = []
    for number in range(-1, num_windows):  # the first pair warms up
        order = (on, off) if number % 2 else (off, on)
        found = {server.name: window(server, clients, seconds) for server in order}
        if number >= 0:
            pairs.append((found["on"], found["off"]))
    clients.target = None
    records = []
    for name in pairs[0][0]:
        ratios = sorted(with_it[name] / without[name] for with_it, without in pairs)
        records.append(
            {
                "name": name,
                "on": median(with_it[name] for with_it, _ in pairs),
                "off": median(without[name] for _, without in pairs),
                "ratio": median(ratios),
                "quartiles": [float(np.percentile(ratios, share)) for share in (25, 75)],
            }
        )
    return records


def write_model(folder: Path) -> None:
    """What of a model a server reads that computes nothing: shapes, and a tokenizer of a hundred words."""
    (folder / "config.json").write_text(json.dumps(CONFIG))
    backend = Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1} | {f"w{i}": i for i in range(2, 100)}, unk_token="w2"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>").save_pretrained(folder)


def flags_of(kind: str, folder: Path, parts: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Of both servers, of the one with `parts`, and what is asked of that."""
    load = LOADS[kind]
    both = ["--num-pages", str(load.num_pages), "--no-log-requests", "--served-model-name", "m"]
    both += ["--max-running", str(load.num_clients)]
    if kind == "fake":
        write_model(folder)
        both += ["--model", str(folder), "--load-format", "dummy", "--overlap", "on", "--max-extend-tokens", "2048"]
    else:
        both += ["--model", "smollm2"]
    on = [flag for flag, part in zip(OFF, ("explain", "metrics", "page"), strict=True) if part not in parts]
    on += ["--trace", str(folder / "trace.json")] if "trace" in parts else []
    asks = ["/metrics"] if "metrics" in parts else []
    asks += ["/inspect/activity?since={since}", "/inspect/tree"] if "page" in parts else []
    return both, on, asks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=tuple(LOADS))
    parser.add_argument("--parts", default=",".join(PARTS), help="what the one server has")
    parser.add_argument("--windows", type=int, default=10, help="pairs of windows")
    parser.add_argument("--seconds", type=float, default=5.0, help="of a window")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    parts = [part for part in args.parts.split(",") if part]
    if unknown := set(parts) - set(PARTS):
        parser.error(f"unknown parts: {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        both, on, asks = flags_of(args.kind, Path(folder), parts)
        servers = [
            stack.enter_context(running("on", args.kind, both + on, asks)),
            stack.enter_context(running("off", args.kind, both + OFF, [])),
        ]
        records = measure(servers[0], servers[1], LOADS[args.kind], args.windows, args.seconds)
    table = Table("", "off", "on", "on / off", "quartiles", title=f"{args.kind}: {', '.join(parts)}")
    for record in records:
        quartiles = " to ".join(f"{ratio:.3f}" for ratio in record["quartiles"])
        table.add_row(
            record["name"], f"{record['off']:,.1f}", f"{record['on']:,.1f}", f"{record['ratio']:.3f}", quartiles
        )
    Console(width=110).print(table)
    print(machine())
    if args.json:
        args.json.write_text(json.dumps({"machine": machine(), "parts": parts, "records": records}, indent=1) + "\n")


if __name__ == "__main__":
    main()
