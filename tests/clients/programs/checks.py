"""Runs the checks of a client's program, standard library only: it is imported in every client's environment.

A program is `python PROGRAM BASE_URL`; it prints a line for each check and exits with 1 when one failed.
"""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable

CHECKS: list[Callable[[str], None]] = []
MODEL = "smollm2"
QUESTION = "What is the capital of France?"


def check(function: Callable[[str], None]) -> Callable[[str], None]:
    """`function` gets the address of the server, without /v1."""
    assert list(inspect.signature(function).parameters) == ["url"], function
    CHECKS.append(function)
    return function


def main() -> None:
    (url,) = sys.argv[1:]
    failed = sum(not _passes(function, url) for function in CHECKS)
    sys.exit(1 if failed or not CHECKS else 0)


def _passes(function: Callable[[str], None], url: str) -> bool:
    name = function.__name__.replace("_", " ")
    try:
        function(url)
    except Exception:
        print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)
        return False
    print(f"ok     {name}", flush=True)
    return True
