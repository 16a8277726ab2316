"""`minisgl serve` in a process of its own, for as long as a test needs it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

START_S = 120.0
ENVIRON = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])}


@dataclass(frozen=True)
class LiveServer:
    """log: what it wrote on stdout and stderr."""

    port: int
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> tuple[int, Any]:
        """Status and body; the body as what JSON says, or as a text."""
        return _open(urllib.request.Request(self.url + path))

    def post(self, path: str, body: Any) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return _open(urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}))

    def is_healthy(self) -> bool:
        try:
            return self.get("/health")[0] == 200
        except (OSError, http.client.HTTPException):
            return False


@contextlib.contextmanager
def live_server(*flags: str, log: Path | None = None, command: tuple[str, ...] = ()) -> Iterator[LiveServer]:
    """A server on a free port, ready. command: instead of `minisgl serve`. AssertionError with its log if it ends."""
    port = free_port()
    path = log or Path(f"/tmp/minisgl-server-{port}.log")
    words = [*(command or (sys.executable, "-m", "minisgl", "serve")), *flags, "--port", str(port)]
    with path.open("wb") as sink:
        process = subprocess.Popen(words, stdout=sink, stderr=subprocess.STDOUT, env=os.environ | ENVIRON)
        server = LiveServer(port, process, path)
        try:
            _wait_until_healthy(server)
            yield server
        finally:
            _end(process)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_healthy(server: LiveServer) -> None:
    deadline = time.monotonic() + START_S
    while not server.is_healthy():
        said = server.log.read_text(errors="replace")[-4000:]
        assert server.process.poll() is None, f"the server ended with {server.process.returncode}:\n{said}"
        assert time.monotonic() < deadline, f"the server is not ready after {START_S:g} s:\n{said}"
        time.sleep(0.1)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _open(request: urllib.request.Request) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            status, body = response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            status, body = error.code, error.read()
    text = body.decode()
    try:
        return status, json.loads(text)
    except ValueError:
        return status, text
