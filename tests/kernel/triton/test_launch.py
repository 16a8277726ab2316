"""No kernel may begin before the last one has ended and then forget to wait for it: told from the source of all."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from minisgl.kernel import triton

WRITES = {"store", "atomic_add"}


def find_kernels() -> dict[str, ast.FunctionDef]:
    """By name, those that are launched so. All but helpers, which have no PDL or write nothing."""
    trees = [ast.parse(path.read_text()) for path in sorted(Path(triton.__file__).parent.glob("*.py"))]
    functions = [node for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {f.name: f for f in functions if f.decorator_list and "PDL" in [a.arg for a in f.args.args] and _writes(f)}


def _writes(function: ast.AST) -> list[int]:
    """Lines where memory is written."""
    return [line for name, line in _calls(function) if name in WRITES]


def _calls(function: ast.AST) -> list[tuple[str, int]]:
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    return [(getattr(call.func, "attr", None) or getattr(call.func, "id", ""), call.lineno) for call in calls]


KERNELS = find_kernels()


def test_the_kernels_are_found():
    assert {"_decode", "_tiles", "_merge", "_gemm", "_rms_norm", "_begin_step", "_pick"} <= set(KERNELS)


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_waits_before_it_writes(name: str):
    waits = [line for called, line in _calls(KERNELS[name]) if called == "wait_for_last"]
    assert waits, "it never waits"
    assert min(waits) < min(_writes(KERNELS[name]))
