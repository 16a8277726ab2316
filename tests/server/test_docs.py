"""docs/metrics.md is what the server's table of metrics says, and no page speaks of a metric that there is not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from minisgl.server.exposition import FAMILIES

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"\bminisgl_[a-z0-9_]+")
SUFFIXES = {"counter": ("_total", ""), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count", "")}


def test_the_page_of_metrics_is_what_the_server_has() -> None:
    """If this fails: scripts/metrics-page > docs/metrics.md"""
    command = [sys.executable, "scripts/metrics-page"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == (ROOT / "docs/metrics.md").read_text()


def test_queries_in_the_documents_name_metrics_that_there_are() -> None:
    shown = {f"minisgl_{family.name}{suffix}" for family in FAMILIES for suffix in SUFFIXES[family.kind]}
    pages = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    queries = [query for page in pages for query in re.findall(r"`([^`\n]*minisgl_[^`\n]*)`", page.read_text())]
    assert len(queries) > len(FAMILIES)
    assert {name for query in queries for name in NAMED.findall(query)} <= shown


def test_a_metric_that_is_in_vllm_has_its_name_there() -> None:
    assert {family.vllm for family in FAMILIES if family.vllm not in (None, f"vllm:{family.name}")} == set()
