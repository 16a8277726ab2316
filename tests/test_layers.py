"""Holds the layer table: a module imports only from rows above its own.

Every import of the package counts, those inside functions and under TYPE_CHECKING too; third-party packages do not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "minisgl"

ROWS: list[list[str]] = [
    ["env"],
    ["utils"],
    ["core", "distributed"],
    ["message", "kernel"],
    ["kvcache", "attention", "tokenizer"],
    ["layers"],
    ["moe"],
    ["models", "scheduler"],
    ["engine", "simulate"],
    ["llm"],
    ["server"],
    ["cli"],
    ["__main__", "__init__"],
]
ROW = {name: row for row, names in enumerate(ROWS) for name in names}

# Where a part may import less than the rows above it; `env` and `utils` are always allowed.
ONLY = {
    "distributed": set[str](),
    "message": {"core"},
    "kernel": set[str](),
    "kvcache": {"core", "kernel"},
    "tokenizer": {"core", "message", "kernel"},
    "scheduler": {"core", "kvcache", "message"},
    "engine": set(ROW) - {"scheduler"},
    "simulate": {"core", "kvcache", "message", "scheduler"},
    "__init__": {"core", "llm"},
}
BASE = {"env", "utils"}

# What the package's own __init__ offers, and the part that it takes it from. __version__ is free.
FACADE = {"LLM": "llm", "AsyncLLM": "llm", "SamplingParams": "core"}


def test_every_import_obeys_the_layer_table():
    violations = [text for path in sorted(PACKAGE.rglob("*.py")) for text in violations_of(path, PACKAGE)]
    assert not violations, "\n" + "\n".join(violations)


def test_every_part_has_a_row():
    parts = {path.stem if path.is_file() else path.name for path in PACKAGE.iterdir()} - {
        "__init__",
        "py",
        "__pycache__",
    }
    assert parts <= set(ROW), f"not in the table: {sorted(parts - set(ROW))}"


@pytest.mark.parametrize(
    ("place", "code", "names"),
    [
        ("scheduler/a.py", "from minisgl.engine import Engine", "engine"),
        ("engine/a.py", "import minisgl.scheduler.loop", "scheduler"),
        ("kvcache/a.py", "def f():\n    from minisgl.scheduler import Scheduler", "scheduler"),
        ("core/a.py", "if TYPE_CHECKING:\n    from minisgl.message import UserMsg", "message"),
        ("attention/a.py", "from minisgl.layers.linear import Linear", "layers"),
        ("layers/a.py", "from minisgl import LLM", "llm"),
        ("layers/a.py", "from minisgl import moe", "moe"),
        ("message/a.py", "from minisgl.distributed import rank", "distributed"),
        ("tokenizer/a.py", "from ..kvcache import base", "kvcache"),
        ("tokenizer/sub/a.py", "from ... import models", "models"),
        ("engine/a.py", "import minisgl", "llm"),
        ("__init__.py", "from minisgl.cli import main", "cli"),
    ],
)
def test_a_forbidden_import_is_found_and_named(tmp_path: Path, place: str, code: str, names: str):
    path = write_module(tmp_path, place, code)
    (violation,) = violations_of(path, tmp_path)
    assert place in violation
    assert f"minisgl.{names}" in violation


@pytest.mark.parametrize(
    ("place", "code"),
    [
        ("layers/a.py", "from minisgl.attention.base import Backend\nimport torch, minisgl.core"),
        ("moe/a.py", "from minisgl.layers import Linear"),
        ("tokenizer/a.py", "from . import chat\nfrom .chat import render"),
        ("cli/a.py", "from minisgl import LLM, __version__"),
        ("kernel/a.py", "from minisgl.env import ENV\nimport minisglong"),
    ],
)
def test_an_allowed_import_is_let_through(tmp_path: Path, place: str, code: str):
    assert violations_of(write_module(tmp_path, place, code), tmp_path) == []


def write_module(package: Path, place: str, code: str) -> Path:
    path = package / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(code)
    return path


def violations_of(path: Path, package: Path) -> list[str]:
    """One sentence for each import of `path` that the table forbids."""
    module = path.relative_to(package).with_suffix("").parts
    part = module[0]
    may = allowed(part)
    return [
        f"minisgl/{'/'.join(module)}.py:{line} imports minisgl.{target}; {part} may import only {', '.join(may)}"
        for line, target in imported_parts(path, module)
        if target not in (part, *may)
    ]


def allowed(part: str) -> list[str]:
    above = {name for name in ROW if ROW[name] < ROW[part]}
    return sorted(above & (ONLY.get(part, above) | BASE))


def imported_parts(path: Path, module: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """(line, part of the package) for every import of the package in `path`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            source = absolute_name(node, module)
            names = [f"{source}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            root, *rest = name.split(".")
            if root == "minisgl" and rest != ["__version__"]:
                # A bare `import minisgl` reaches all that it offers.
                yield node.lineno, FACADE.get(rest[0], rest[0]) if rest else "llm"


def absolute_name(node: ast.ImportFrom, module: tuple[str, ...]) -> str:
    if not node.level:
        return node.module or ""
    above = ("minisgl", *module)[: -node.level]
    return ".".join([*above, *([node.module] if node.module else [])])
