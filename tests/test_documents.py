"""Whoever reads the README finds every document, and every link inside the repository leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from minisgl.server.endpoints import ROUTES

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "deploy").glob("*.md")])


def linked_from(document: Path) -> set[Path]:
    """The files and folders of this repository that it links to."""
    targets = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", document.read_text())
    return {(document.parent / target).resolve() for target in targets}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    assert not [str(target) for target in linked_from(document) if not target.exists()]


@pytest.mark.parametrize(
    "name", ["architecture", "cache", "server", "api", "security", "flags", "benchmarks", "decisions", "lab-notes"]
)
def test_the_readme_lists_the_documents(name: str) -> None:
    assert ROOT / "docs" / f"{name}.md" in linked_from(ROOT / "README.md")


def test_the_page_on_the_cache_leads_to_all_that_says_more() -> None:
    names = ("eviction", "scheduling", "memory", "simulate", "security", "api", "flags")
    assert {ROOT / "docs" / f"{name}.md" for name in names} <= linked_from(ROOT / "docs" / "cache.md")


def test_who_runs_a_server_finds_its_api_its_flags_and_its_promises() -> None:
    pages = {ROOT / "docs" / f"{name}.md" for name in ("api", "flags", "security")}
    assert pages <= linked_from(ROOT / "docs" / "server.md")


def test_the_changelog_names_the_endpoints_that_are_not_openais() -> None:
    posted = {route.path for route in ROUTES if route.methods and "POST" in route.methods}
    named = set(re.findall(r"`(/[\w/]+)`", (ROOT / "CHANGELOG.md").read_text()))
    assert named >= {path for path in posted if not path.startswith("/v1/")}
