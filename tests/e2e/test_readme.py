"""The README's program prints what the README shows, and so do the examples and the command line."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_python_program_prints_what_is_shown() -> None:
    (program,) = blocks("python")
    assert run(sys.executable, "-c", program) == blocks("text")[0]


def test_the_quick_start_is_the_readmes_program() -> None:
    (program,) = blocks("python")
    assert (ROOT / "examples/quick_start.py").read_text().partition("\n\n")[2] == program


def test_the_prefix_reuse_example_prints_what_is_shown() -> None:
    out = run(sys.executable, "examples/prefix_reuse.py")
    assert re.sub(r", [\d.]+ s$", "", out, flags=re.MULTILINE) == blocks("text")[1]


def test_the_command_line_prints_what_is_shown() -> None:
    (console,) = blocks("console")
    _, shown = console.split("$ ")[1].split("\n", 1)
    out = run(
        *(sys.executable, "-m", "minisgl", "generate", "--dtype", "float32", "--max-tokens", "8"),
        "The capital of France is",
    )
    assert out == shown


def test_every_link_to_a_file_leads_somewhere() -> None:
    for document in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
