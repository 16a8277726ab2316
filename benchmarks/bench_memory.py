"""What the processes of a server hold under a mixed load, over time: `python benchmarks/bench_memory.py`.

    python benchmarks/bench_memory.py [--model smollm2 | tiny] [--seconds 300] [--clients 14] [--pause 0] [--json FILE]

A `minisgl serve` in float32 with a KV pool of 1,500 pages, 8 running requests, and priorities that count for policy and
eviction; the load is that of tests/support/soak.py. Resident memory in MB, the engine's without its KV pool, from when
every page of the pool has been used. tiny: a random model, which does many more requests a second.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from stopwatch import machine
from support.live_server import live_server
from support.soak import MB, SMOLLM2, TINY, Processes, Reading, Soak, pool_bytes
from support.tiny_model import make_tiny_model

from minisgl.utils.model_store import resolve_model

NUM_PAGES = 1500
FLAGS = ["--dtype", "float32", "--num-pages", str(NUM_PAGES), "--max-running", "8"]
PRIORITIES = ["--policy", "priority", "--eviction", "priority"]


@contextlib.contextmanager
def model_folder(name: str) -> Iterator[Path]:
    """Of the model of that name, `tiny` being made."""
    if name != "tiny":
        yield resolve_model(name)
        return
    with tempfile.TemporaryDirectory() as folder:
        yield make_tiny_model(Path(folder), max_position_embeddings=2048)


def show(reading: Reading) -> None:
    server, engine = reading.server / MB, reading.engine / MB
    print(f"{reading.at_s:8.0f} s {reading.num_requests:9,} requests   server {server:6.1f}   engine {engine:6.1f}")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2", help="a name or folder, or tiny for a random one")
    parser.add_argument("--seconds", type=float, default=300, help="from when the pool was filled")
    parser.add_argument("--every", type=float, default=15, help="seconds between two readings")
    parser.add_argument("--clients", type=int, default=14)
    parser.add_argument("--pause", type=float, default=0, help="seconds that a client rests between requests")
    parser.add_argument("--json", type=Path, help="write the readings to this file")
    args = parser.parse_args()
    with model_folder(args.model) as folder, live_server("--model", str(folder), *FLAGS, *PRIORITIES) as server:
        processes = Processes.of(server.process.pid, pool_bytes(folder, NUM_PAGES))
        print(f"{machine()}; KV pool {processes.pool_bytes / MB:.1f} MB")
        soak = Soak(server.url, TINY if args.model == "tiny" else SMOLLM2, args.clients, pause_s=args.pause)
        readings = soak.run(args.seconds, processes, args.every, show)
    print(dict(soak.done))
    if args.json:
        entries = [asdict(reading) for reading in readings]
        args.json.write_text(json.dumps({"machine": machine(), "errors": soak.errors, "readings": entries}) + "\n")
    for error in soak.errors:
        print(error)
    return 1 if soak.errors else 0


if __name__ == "__main__":
    sys.exit(main())
