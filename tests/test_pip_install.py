"""What `make setup` shows while pip works: scripts/pip-install."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts/pip-install"
SAID = """\
Looking in indexes: https://pypi.org/simple
Obtaining file:///home/ada/minisgl
  Installing build dependencies: started
  Installing build dependencies: finished with status 'done'
  Preparing editable metadata (pyproject.toml): started
Collecting transformers==5.24.0 (from -c constraints.txt (line 80))
  Downloading transformers-5.24.0-py3-none-any.whl.metadata (43 kB)
  Using cached numpy-2.4.6-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl (18.5 MB)
Downloading transformers-5.24.0-py3-none-any.whl (11.9 MB)
Processing /wheels/mdurl-0.1.2-py3-none-any.whl (from markdown-it-py>=2.2.0->rich)
  Downloading antlr4_python3_runtime-4.9.3.tar.gz (117 kB)
Requirement already satisfied: torch==2.13.0 in ./.venv/lib/python3.11/site-packages
Building wheels for collected packages: minisgl
  Building editable for minisgl (pyproject.toml): started
  Building editable for minisgl (pyproject.toml): finished with status 'done'
Installing collected packages: numpy, transformers, minisgl
Successfully installed minisgl-0.1.0 numpy-2.4.6 transformers-5.24.0
"""


@pytest.fixture(scope="module")
def script() -> Any:
    loader = SourceFileLoader("pip_install", str(SCRIPT))
    spec = spec_from_loader("pip_install", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_a_line_comes_for_each_package_and_phase(script: Any) -> None:
    shown: list[str] = []
    times = iter(range(0, 100, 2))
    lines = SAID.splitlines(keepends=True)
    assert script.Progress(shown.append, lambda: next(times)).take(lines) == lines
    assert shown == [
        "     2 s  fetching what builds the packages that come as sources",
        "     4 s  compiling the C++ kernels, if there is a compiler",
        "     6 s  numpy-2.4.6 (18.5 MB)",
        "     8 s  transformers-5.24.0 (11.9 MB)",
        "    10 s  mdurl-0.1.2",
        "    12 s  antlr4_python3_runtime-4.9.3 (117 kB)",
        "    14 s  building minisgl",
        "    16 s  installing 3 packages",
        "    18 s  installed",
    ]


def test_a_phase_that_takes_long_is_said_again_every_ten_seconds(script: Any) -> None:
    shown: list[str] = []
    now = 0.0
    progress = script.Progress(shown.append, lambda: now)
    progress.take(["Installing collected packages: numpy, torch\n"])
    for now in range(1, 26):  # noqa: B007 - the clock reads it
        progress.tick()
    assert shown == [
        "     0 s  installing 2 packages",
        "    10 s  still at it: installing 2 packages",
        "    20 s  still at it: installing 2 packages",
    ]


def test_a_failure_is_told_in_pip_s_own_words_and_code() -> None:
    command = [sys.executable, str(SCRIPT), "--no-index", "--find-links", "/nowhere", "no-such-package"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "No matching distribution found for no-such-package" in done.stderr
