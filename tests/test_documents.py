"""Whoever reads the README finds every document, every link leads somewhere, and every program in them runs."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections import Counter
from pathlib import Path

import pytest
from support.documents import DOCUMENTS, ROOT, blocks, name_of
from support.tiny_model import make_tiny_model

from minisgl import LLM, SamplingParams
from minisgl.server.endpoints import ROUTES

ANCHOR = re.compile(r"\]\((?!https?:)([^)#\s]*)#([^)\s]+)\)")


def linked_from(document: Path) -> set[Path]:
    """The files and folders of this repository that it links to."""
    targets = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", document.read_text())
    return {(document.parent / target).resolve() for target in targets}


def anchors(document: Path) -> set[str]:
    """Of its headings, as GitHub and the site name them."""
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    seen: Counter[str] = Counter()
    found = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(document: Path) -> None:
    assert not [str(target) for target in linked_from(document) if not target.exists()]
    inside = [
        (document.parent / target if target else document, anchor)
        for target, anchor in ANCHOR.findall(document.read_text())
    ]
    assert [(name_of(page.resolve()), anchor) for page, anchor in inside if anchor not in anchors(page)] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_python_and_json_that_is_shown_is_such(document: Path) -> None:
    for program in blocks(document, "python"):
        compile(program, name_of(document), "exec")
    for value in blocks(document, "json"):
        json.loads(value)


def test_the_program_on_the_radix_tree_prints_what_is_shown() -> None:
    document = ROOT / "docs" / "radix-attention.md"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec("\n".join(blocks(document, "python")), {"__name__": "__main__"})
    assert printed.getvalue() == "".join(blocks(document, "text"))


def test_calls_of_an_llm_are_as_the_page_on_the_cache_shows_them(tmp_path: Path) -> None:
    with LLM(str(make_tiny_model(tmp_path)), num_page_override=512) as llm:
        exec("\n".join(blocks(ROOT / "docs" / "cache.md", "python")), {"llm": llm, "SamplingParams": SamplingParams})


def test_who_begins_at_the_readme_comes_to_every_document() -> None:
    found, new = set(), {ROOT / "README.md"}
    while new:
        found |= new
        new = {page for document in new for page in linked_from(document) if page.suffix == ".md"} - found
    assert set(DOCUMENTS) - found == set()


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
