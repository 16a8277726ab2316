from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_of_flags_is_what_the_commands_have() -> None:
    """If this fails: scripts/flags-page > docs/flags.md"""
    done = subprocess.run([sys.executable, "scripts/flags-page"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == (ROOT / "docs/flags.md").read_text()
