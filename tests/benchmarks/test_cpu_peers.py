"""The drivers of peers, where one can do without the peer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DRIVERS = HERE.parents[1] / "benchmarks/cpu_peers"
SIZES = ["--model", "m.gguf", "--threads", "1", "--tokens", "64", "--seqs", "2"]


def converse(binary: Path, *requests: dict[str, Any]) -> list[dict[str, Any]]:
    """What the driver of llama.cpp's server says, the greeting first; it has ended then."""
    done = subprocess.run(
        [sys.executable, DRIVERS / "run_llama.py", *SIZES, "--binary", binary],
        input="".join(json.dumps(request) + "\n" for request in requests),
        capture_output=True,
        text=True,
        timeout=60,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_llama_cpps_server_is_asked_for_all_prompts_at_once_and_ended_with_its_driver(tmp_path: Path) -> None:
    server = program(
        tmp_path / "server", f'echo $$ > {tmp_path}/pid; exec {sys.executable} {HERE}/fake_llama_server.py "$@"'
    )
    hello, answer = converse(server, {"prompts": [[1, 5], [1, 9]], "out": 3})
    assert "b1-fake" in hello["about"]
    assert hello["kv_pool_tokens"] == 2 * 1280
    assert answer["tokens"] == [[6, 7, 8], [10, 11, 12]]
    pid = (tmp_path / "pid").read_text().strip()
    assert not Path(f"/proc/{pid}").exists()


def test_a_server_that_does_not_start_is_said_to_have_ended(tmp_path: Path) -> None:
    (answer,) = converse(program(tmp_path / "server", "exit 7"))
    assert answer["error"] == "RuntimeError: the server ended with 7"
