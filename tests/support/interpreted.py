"""Triton's interpreter as these tests want it: with bounds of loops that a kernel loads, and in half the time."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from triton import language
from triton.runtime import interpreter


@cache
def prepare() -> None:
    """For all tests of this process, however many of them ask for it."""
    allow_loaded_bounds()
    patch_once_a_kernel()
    forget_overflows()


def allow_loaded_bounds() -> None:
    """With NumPy 2.4, which makes no int of an array of one element."""
    patch = interpreter._patch_lang_tensor

    def patch_with_index(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patch_with_index


def patch_once_a_kernel() -> None:
    """The language is looked through for what to patch at each call of a helper too, when a kernel's own call has done
    so: a fifth of all the time."""
    patch, is_builtin = interpreter._patch_lang, language.core.is_builtin

    def patch_what_is_not(function: Callable[..., Any]) -> Any:
        values = [value for value in function.__globals__.values() if inspect.ismodule(value)]
        languages = [value for value in values if value in (language, language.core)]
        if any(is_builtin(found.load) or is_builtin(found.tensor.__add__) for found in languages):
            return patch(function)
        return interpreter._LangPatchScope()

    interpreter._patch_lang = patch_what_is_not


def forget_overflows() -> None:
    """Sums and products of integers are computed in 64 bits as well, to compare; what that finds is only told in debug
    mode. A quarter of all the time."""
    builder = interpreter.interpreter_builder
    builder.options = replace(builder.options, sanitize_overflow=False)
