"""The benchmark of the HTTP process, small: many streams at once, each of them whole and in order."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "bench_http.py"


def test_a_thousand_streams_are_whole_and_in_order(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    command = [sys.executable, BENCHMARK, "--servers", "ours", "--tokens", "100", "--json", file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (result,) = json.loads(file.read_text())["results"]
    assert result["num_tokens"] == 100_000
    assert result["errors"] == []
