"""How many objects something keeps alive, counted between two moments in which nothing is going on."""

from __future__ import annotations

import gc
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

_EVERYBODYS = (type, ModuleType, FunctionType, BuiltinFunctionType, CodeType)  # and what caches of theirs hold


def num_reachable(*roots: Any) -> int:
    """Objects that can be reached from `roots`, numbers and texts in their containers too; no classes or functions."""
    gc.collect()
    seen: dict[int, Any] = {}
    found = list(roots)
    while found:
        one = found.pop()
        if id(one) not in seen and not isinstance(one, _EVERYBODYS):
            seen[id(one)] = one
            found += gc.get_referents(one)
    return len(seen)
