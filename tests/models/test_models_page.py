"""docs/models.md lists what is tested, and every architecture that there is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from minisgl.models import MODELS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/models.md").read_text()


def test_the_table_of_models_is_what_the_tests_have() -> None:
    """If this fails: scripts/models-table > models.md && mv models.md docs"""
    done = subprocess.run(
        [sys.executable, "scripts/models-table"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == PAGE


def test_every_architecture_is_tested() -> None:
    assert [name for name in MODELS.names if f"| `{name}` |" not in PAGE] == []
