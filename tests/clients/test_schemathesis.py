"""schemathesis makes requests of our own OpenAPI page, valid and not, and compares every answer with what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.client_environments import environment
from support.live_server import live_server

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]
# More is refused than a schema can say: a prompt beyond the context, two fields of which one is needed.
OPTIONS = ("--exclude-checks", "positive_data_acceptance", "--suppress-health-check", "all", "--no-color")
BOUNDS = ("--max-examples", "100", "--generation-deterministic", "--request-timeout", "20")


def test_every_answer_is_what_the_openapi_page_says(tmp_path: Path) -> None:
    with live_server(command=(sys.executable, "-m", "support.scripted_server")) as server:
        command = [environment("schemathesis") / "bin" / "st", "run", f"{server.url}/openapi.json", *OPTIONS, *BOUNDS]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False)
        assert done.returncode == 0, done.stdout[-8000:] + done.stderr
        assert server.is_healthy()
        status, answer = server.post("/v1/completions", {"model": "a-model", "prompt": "abc", "max_tokens": 4})
    assert (status, answer["choices"][0]["text"]) == (200, "abca")
