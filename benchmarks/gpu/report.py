"""How the results of the GPU benchmarks are shown: tables beside the machine and its memory, and JSON."""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from minisgl import LLM
from minisgl.utils.hardware import find_hardware

GIB = 2**30
console = Console(width=160)


def machine() -> str:
    """Device and versions, in one line."""
    hardware = find_hardware()
    device = hardware.gpus[0].name if hardware.gpus else hardware.cpu_name
    packages = ("torch", "triton", "flashinfer-python")
    found = [f"{name} {number}" for name in packages if (number := _version(name))]
    return f"{device}, CUDA {torch.version.cuda}, Python {platform.python_version()}, {', '.join(found)}"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def memory_account(llm: LLM) -> dict[str, float]:
    """GiB of the GPU by what they are for; empty off a GPU."""
    account = {name: num_bytes / GIB for name, num_bytes in llm._parts.engine.memory.parts.items()}
    if account:
        held = torch.cuda.memory_allocated()
        account["tensors of a batch at most"] = (torch.cuda.max_memory_allocated() - held) / GIB
        account["free"] = torch.cuda.mem_get_info()[0] / GIB
    return account


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print it; figures are right-aligned."""
    shown = Table(title=title, title_justify="left")
    for position, column in enumerate(columns):
        shown.add_column(column, justify="right" if position else "left")
    for row in rows:
        shown.add_row(*(_cell(value) for value in row))
    console.print(shown)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) < 100 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else "-" if value is None else str(value)


def write_json(path: Path | None, args: argparse.Namespace, results: object) -> None:
    if path is not None:
        options = {name: str(value) for name, value in vars(args).items()}
        path.write_text(json.dumps({"machine": machine(), "options": options, "results": results}, indent=1))
