"""Where an event loop has text tokenized: in threads, of which long texts have one to themselves.

So nobody waits behind a long text but another one, and memory is bounded: tokenizing takes up to 200 bytes a character.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

LONG = 2**18  # characters, or tokens: a tenth of a second's work
P = ParamSpec("P")
T = TypeVar("T")
_LONG_TEXTS = ThreadPoolExecutor(1, thread_name_prefix="minisgl-long-texts")


async def in_thread(size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What the function gives. size: about how many characters or tokens it works on."""
    if size < LONG:
        return await asyncio.to_thread(function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_LONG_TEXTS, partial(function, *args, **kwargs))


def size_of(value: Any, depth: int = 5) -> int:
    """Characters in the strings of JSON's objects, and some for each object. Ones nested deeper do not count."""
    if isinstance(value, str):
        return len(value)
    if depth and isinstance(value, Mapping):
        return 64 + sum(size_of(item, depth - 1) for item in value.values())
    if depth and isinstance(value, list | tuple):
        return sum(size_of(item, depth - 1) for item in value)
    return 0
