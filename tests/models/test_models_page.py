"""docs/models.md lists what is tested, and every architecture that there is."""

from __future__ import annotations

from pathlib import Path

from support.models_page import page

from minisgl.models import MODELS

PAGE = (Path(__file__).parents[2] / "docs/models.md").read_text()


def test_the_table_of_models_is_what_the_tests_have() -> None:
    """If this fails: scripts/models-table > models.md && mv models.md docs"""
    assert page(PAGE) == PAGE


def test_every_architecture_is_tested() -> None:
    assert [name for name in MODELS.names if f"| `{name}` |" not in PAGE] == []
