"""docs/server.md names every metric, with vLLM's name for it."""

from __future__ import annotations

from pathlib import Path

from minisgl.server.exposition import FAMILIES, Family

SERVER_MD = (Path(__file__).parents[2] / "docs/server.md").read_text()


def row(family: Family) -> str:
    label = f" by `{family.label}`" if family.label else ""
    vllm = f"`{family.vllm}`" if family.vllm else ""
    return f"| `minisgl_{family.name}` | {family.kind}{label} | {vllm} | {family.help} |"


def test_the_table_of_metrics_is_that_of_the_code() -> None:
    shown = [line for line in SERVER_MD.splitlines() if line.startswith("| `minisgl_")]
    assert shown == [row(family) for family in FAMILIES]
