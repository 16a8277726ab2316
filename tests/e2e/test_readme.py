"""The README's program prints what the README shows, and so do the examples and the command line."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.live_server import live_server

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def run(*command: str, **variables: str) -> str:
    env = os.environ | variables
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=env).stdout


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def without_id(answer: str) -> dict[str, object]:
    return {**json.loads(answer), "id": None, "created": None}


def without_seconds(text: str) -> str:
    return re.sub(r" [\d.]+ s$", "", text, flags=re.MULTILINE)


def test_the_server_answers_curl_and_openai_python_as_is_shown(tmp_path: Path) -> None:
    (curl,), (client, _), (answer,) = blocks("bash"), blocks("python"), blocks("json")
    with live_server("--dtype", "float32", log=tmp_path / "log") as server:
        found = {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "none"}
        assert without_id(run("bash", "-c", curl, **found)) == without_id(answer)
        assert run(sys.executable, "-c", client, **found) == blocks("text")[0]


def test_the_python_program_prints_what_is_shown() -> None:
    _, program = blocks("python")
    assert run(sys.executable, "-c", program) == blocks("text")[1]


@pytest.mark.parametrize(
    ("example", "language", "index"),
    [("openai_client.py", "python", 0), ("quick_start.py", "python", 1), ("curl_chat.sh", "bash", 0)],
)
def test_the_examples_are_the_readmes_programs(example: str, language: str, index: int) -> None:
    assert (ROOT / "examples" / example).read_text().partition("\n\n")[2] == blocks(language)[index]


def test_the_prefix_reuse_example_prints_what_is_shown() -> None:
    out = run(sys.executable, "examples/prefix_reuse.py")
    assert without_seconds(out) == without_seconds(blocks("text")[2])


def test_the_command_line_prints_what_is_shown() -> None:
    console, _ = blocks("console")
    _, shown = console.split("$ ")[1].split("\n", 1)
    out = run(
        *(sys.executable, "-m", "minisgl", "generate", "--dtype", "float32", "--max-tokens", "8"),
        "The capital of France is",
    )
    assert out == shown


def test_a_prompt_is_explained_as_is_shown() -> None:
    _, console = blocks("console")
    command, shown = console.removeprefix("$ minisgl ").split("\n", 1)
    assert run(sys.executable, "-m", "minisgl", *shlex.split(command)) == shown
