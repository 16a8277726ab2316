"""The site of the documentation has every page, and its pictures are what the code draws."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
CONF: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / "conf.py"))
WALK = ROOT / "docs" / "walk"


def test_every_document_has_one_place_in_the_navigation() -> None:
    """If this fails: docs/conf.py says where a page stands on the site."""
    listed = sorted(page for pages in CONF["NAVIGATION"].values() for page in pages)
    found = [file for pattern in CONF["include_patterns"] for file in ROOT.glob(pattern)]
    assert [CONF["START"], *listed] == ["README", *sorted({_name(file) for file in found} - {"README"})]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("walk")
    subprocess.run([sys.executable, ROOT / "scripts" / "draw-walk", folder], check=True)
    return folder


def test_the_walk_is_drawn_of_what_the_cache_does_now(drawn: Path) -> None:
    """If this fails: scripts/draw-walk"""
    kept = {file.name: file.read_text() for file in WALK.iterdir()}
    assert kept == {file.name: file.read_text() for file in drawn.iterdir()}


def test_the_walk_is_drawn_for_light_and_dark_pages_and_each_picture_is_shown() -> None:
    page = (ROOT / "docs" / "radix-attention.md").read_text()
    light = {file.name for file in WALK.glob("*-light.svg")}
    assert {file.name for file in WALK.iterdir()} == light | {name.replace("-light", "-dark") for name in light}
    assert [name for name in light if f"(walk/{name})" not in page] == []


def _name(file: Path) -> str:
    return str(file.relative_to(ROOT).with_suffix(""))
