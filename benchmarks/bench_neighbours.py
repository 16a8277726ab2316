"""How long a stream stands still while others send the worst bodies of 16 MB, again and again, to the same server.

    python benchmarks/bench_neighbours.py                                # every kind, one client and four, some minutes
    python benchmarks/bench_neighbours.py --kinds ids,keys,lists --seconds 10
    python benchmarks/bench_neighbours.py --server ../other/.venv/bin/python   # another checkout, to compare
    python benchmarks/bench_neighbours.py --unread 30       # clients that ask for large texts and do not read them

The server is `minisgl serve` with SmolLM2 on the CPU; the clients are processes of their own. For each kind of body:
tokens that the neighbour got, the largest gap between two pieces of its stream, the longest answer of /health, how many
bodies were answered, and with which statuses. The stream's own gaps are in the row without clients.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import multiprocessing
import multiprocessing.synchronize
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from stopwatch import machine

SIZE = 16 * 2**20 - 4096
TARGET_S = 0.15


def filled(head: bytes, piece: bytes, tail: bytes, size: int = SIZE) -> bytes:
    """A body of about `size` bytes, of one piece over and over."""
    return head + piece * ((size - len(head) - len(tail)) // len(piece)) + tail


def keys(size: int = SIZE) -> bytes:
    made = b",".join(b'"k%07d":1' % number for number in range(size // 13 - 10))
    return b'{"prompt":"Hi","max_tokens":1,"metadata":{%b}}' % made


def at_the_bounds() -> bytes:
    """About the most that is still decoded: values, keys, fractions, exponents and escapes."""
    ids, many = b"[%b1]" % (b"12345," * 900_000), b",".join(b'"k%d":1' % number for number in range(100_000))
    floats = b"[%b1]" % (b"1.7976931348623157e308," * 1000)
    text = filled(b'"', b"\\n", b'"', 5_000_000)
    return b'{"prompt":"Hi","max_tokens":1,"metadata":{%b},"store":%b,"user":%b,"service_tier":%b}' % (
        many, ids, floats, text,
    )  # fmt: skip


PROMPTS = b'{"max_tokens":1,"prompt":['
MESSAGE = b'{"role":"user","content":"x"}'
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
KINDS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "ids": (COMPLETIONS, lambda: filled(PROMPTS, b"12345,", b"1]}")),
    "keys": (COMPLETIONS, keys),
    "lists": (COMPLETIONS, lambda: filled(PROMPTS, b"[5],", b"[5]]}")),
    "detokenize": ("/detokenize", lambda: filled(b'{"tokens":[', b"7,", b"7]}")),
    "generate": ("/generate", lambda: filled(b'{"input_ids":[', b"12345,", b"1]}")),
    "probe": ("/cache/probe", lambda: filled(b'{"input_ids":[', b"12345,", b"1]}")),
    "messages": (CHAT, lambda: filled(b'{"max_tokens":1,"messages":[', MESSAGE + b",", MESSAGE + b"]}")),
    "some messages": (CHAT, lambda: filled(b'{"max_tokens":1,"messages":[', MESSAGE + b",", MESSAGE + b"]}", 700_000)),
    "text": (COMPLETIONS, lambda: filled(b'{"max_tokens":1,"prompt":"', b"some words ", b'"}')),
    "escapes": (COMPLETIONS, lambda: filled(b'{"max_tokens":1,"prompt":"', b"\\u4e16", b'"}')),
    "stop": (COMPLETIONS, lambda: filled(b'{"prompt":"Hi","stop":[', b'"ab",', b'"ab"]}')),
    "bias": (COMPLETIONS, lambda: filled(b'{"prompt":"Hi","logit_bias":{', b'"1":1,', b'"1":1}}')),
    "unknown": (COMPLETIONS, lambda: filled(b'{"prompt":"Hi","max_tokens":1,"unknown":[', b"[[1]],", b"1]}")),
    "floats": (COMPLETIONS, lambda: filled(b'{"prompt":"Hi","max_tokens":1,"metadata":[', b"1e300,", b"1]}")),
    "digits": (COMPLETIONS, lambda: filled(b'{"prompt":"Hi","max_tokens":1,"metadata":[', b"9" * 4000 + b",", b"1]}")),
    "bounds": (COMPLETIONS, at_the_bounds),
}  # fmt: skip


@dataclass
class Seen:
    """What one run showed. times: of the neighbour's pieces."""

    kind: str
    num_clients: int
    times: list[float]
    health_s: float
    statuses: dict[str, int]

    @property
    def largest_gap_s(self) -> float:
        return max((after - before for before, after in zip(self.times, self.times[1:], strict=False)), default=0.0)


def head(port: int, path: str, length: int) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {length}\r\nConnection: close\r\n\r\n"
    ).encode()


def send_for_ever(
    port: int, kind: str, go: multiprocessing.synchronize.Event, statuses: multiprocessing.Queue[str]
) -> None:
    path, make = KINDS[kind]
    body = make()
    statuses.put("ready")
    go.wait()
    while True:
        with socket.create_connection(("127.0.0.1", port)) as client:
            answer = b""
            with contextlib.suppress(ConnectionError):
                client.sendall(head(port, path, len(body)))
                client.sendall(body)
            with contextlib.suppress(ConnectionError):
                while piece := client.recv(2**16):
                    answer = (answer + piece)[:200]
        statuses.put(answer.split(b" ")[1].decode() if answer else "cut")


class Neighbour(threading.Thread):
    """A stream, and when its pieces came."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.times: list[float] = []
        self._socket = socket.create_connection(("127.0.0.1", port))
        fields = {
            "prompt": "Once upon a time",
            "max_tokens": 8000,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
        }
        body = json.dumps(fields).encode()
        self._socket.sendall(head(port, COMPLETIONS, len(body)) + body)

    def run(self) -> None:
        with contextlib.suppress(OSError):
            while self._socket.recv(2**16):
                self.times.append(time.monotonic())

    def leave(self) -> None:
        self._socket.close()


def longest_health(port: int, seconds: float) -> float:
    """The longest that /health took, asked ten times a second."""
    longest, until = 0.0, time.monotonic() + seconds
    while (began := time.monotonic()) < until:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            while client.recv(2**16):
                pass
        longest = max(longest, time.monotonic() - began)
        time.sleep(0.1)
    return longest


def measure(port: int, kind: str, num_clients: int, seconds: float) -> Seen:
    context = multiprocessing.get_context("spawn")
    go, statuses = context.Event(), context.Queue()
    clients = [
        context.Process(target=send_for_ever, args=(port, kind, go, statuses), daemon=True) for _ in range(num_clients)
    ]
    for client in clients:
        client.start()
    for _ in clients:
        statuses.get()
    neighbour = Neighbour(port)
    neighbour.start()
    while len(neighbour.times) < 20:
        time.sleep(0.05)
    began = time.monotonic()
    go.set()
    health_s = longest_health(port, seconds)
    ended = time.monotonic()
    times = [at for at in neighbour.times if began <= at <= ended]
    for client in clients:
        client.kill()
    neighbour.leave()
    time.sleep(1.0)
    counts: collections.Counter[str] = collections.Counter()
    while not statuses.empty():
        counts[statuses.get()] += 1
    return Seen(kind, num_clients, [began, *times, ended], health_s, dict(counts))


@contextlib.contextmanager
def running_server(python: str, log: Path) -> Iterator[tuple[int, int]]:
    """Its port and its process id."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [python, "-m", "minisgl", "serve", "--model", "smollm2", "--port", str(port), "--no-log-requests"]
    with log.open("wb") as sink:
        process = subprocess.Popen([*command, "--num-pages", "65536"], stdout=sink, stderr=sink, cwd=log.parent)
        try:
            wait_until_ready(port, process)
            yield port, process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def wait_until_ready(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            if client.recv(100).split(b" ")[1] == b"200":
                return
        assert process.poll() is None, f"the server ended with {process.returncode}"
        time.sleep(0.2)
    raise AssertionError("the server does not get ready")


def peak_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def ask_without_reading(port: int, num_clients: int) -> list[socket.socket]:
    """Half of the clients ask for the longest text that /detokenize writes, half send a body of 16 MB."""
    longest = filled(b'{"tokens":[', b"45855,", b"7]}", 13_000 * 6)  # 80 characters each
    made: list[socket.socket] = []
    for number in range(num_clients):
        client = socket.create_connection(("127.0.0.1", port))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        body = longest if number % 2 else filled(b'{"tokens":[', b"45855,", b"7]}")
        threading.Thread(
            target=send_all, args=(client, head(port, "/detokenize", len(body)), body), daemon=True
        ).start()
        made.append(client)
    return made


def send_all(client: socket.socket, *pieces: bytes) -> None:
    with contextlib.suppress(OSError):
        for piece in pieces:
            client.sendall(piece)


def measure_unread(server: str, num_clients: int, seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder, running_server(server, Path(folder) / "log") as (port, pid):
        before = peak_mb(pid)
        clients = ask_without_reading(port, num_clients)
        time.sleep(seconds)
        print(
            f"{num_clients} clients of /detokenize that do not read: peak {peak_mb(pid):.0f} MB, before {before:.0f} MB"
        )
        print(f"/health then takes {1e3 * longest_health(port, 1.0):.0f} ms at most")
        for client in clients:
            client.close()


def table(seen: list[Seen]) -> Table:
    out = Table(title="A neighbour's stream", title_justify="left")
    for column in ("bodies", "clients", "tokens/s", "largest gap, ms", "/health, ms", "answers"):
        out.add_column(column)
    for each in seen:
        rate = (len(each.times) - 2) / (each.times[-1] - each.times[0])
        answers = ", ".join(f"{status}: {num}" for status, num in sorted(each.statuses.items()))
        gap, health = f"{1e3 * each.largest_gap_s:.0f}", f"{1e3 * each.health_s:.0f}"
        out.add_row(each.kind, str(each.num_clients), f"{rate:.1f}", gap, health, answers)
    return out


def main() -> None:
    args = parse_args()
    if args.unread:
        measure_unread(args.server, args.unread, args.seconds)
        return
    seen: list[Seen] = []
    with tempfile.TemporaryDirectory() as folder, running_server(args.server, Path(folder) / "log") as (port, pid):
        seen.append(measure(port, "none", 0, args.seconds))
        for kind in args.kinds.split(","):
            for num in map(int, args.clients.split(",")):
                seen.append(measure(port, kind, num, args.seconds))
                print(kind, num, f"{1e3 * seen[-1].largest_gap_s:.0f} ms", seen[-1].statuses, flush=True)
        peak = peak_mb(pid)
    Console(width=120).print(table(seen))
    over = [each.kind for each in seen if each.largest_gap_s > TARGET_S]
    print(f"peak memory of the HTTP process: {peak:.0f} MB", machine(), sep="\n")
    print(f"target {TARGET_S} s: " + (f"missed by {', '.join(over)}" if over else "kept"))


def parse_args() -> Any:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"of {', '.join(KINDS)}")
    parser.add_argument("--clients", default="1,4", help="how many send at the same time")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each run")
    parser.add_argument("--unread", type=int, default=0, metavar="N", help="instead: N clients that do not read")
    parser.add_argument("--server", default=sys.executable, help="the Python that has the server")
    args = parser.parse_args()
    args.server = os.path.abspath(args.server)
    return args


if __name__ == "__main__":
    main()
