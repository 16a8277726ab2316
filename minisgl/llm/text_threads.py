"""Where an event loop has text tokenized: in threads, of which long texts have one to themselves.

So nobody waits behind a long text but another one, and memory is bounded: tokenizing takes up to 200 bytes a character.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ParamSpec, TypeVar

from minisgl.llm.encoder import Prompt
from minisgl.utils.lone_thread import LoneThread
from minisgl.utils.math import num_bytes

LONG = 2**18  # bytes of text, or tokens: a tenth of a second's work
COUNTED_DEPTH = 5  # of messages: a call's arguments, and what they hold
P = ParamSpec("P")
T = TypeVar("T")
LONG_TEXTS = LoneThread("minisgl-long-texts")


async def in_thread(size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run the function in a thread, and return its result. size: rough number of bytes or tokens that it works on."""
    if size < LONG:
        return await asyncio.to_thread(function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(LONG_TEXTS, partial(function, *args, **kwargs))


def prompt_size(prompt: Prompt) -> int:
    """Bytes of a text, or the number of token ids; 1 for what is no prompt."""
    if isinstance(prompt, str):
        return num_bytes(prompt)
    ids = prompt.get("input_ids") if isinstance(prompt, Mapping) else prompt
    return len(ids) if isinstance(ids, Sequence) else math.prod(getattr(ids, "shape", ()))


def size_of(value: Any) -> int:
    """Bytes of the strings in JSON's objects, and some for each object. What is nested deeper does not count.

    Counted no further than to LONG, because there may be millions.
    """
    size = 0
    for part in _sizes(value, COUNTED_DEPTH):
        size += part
        if size >= LONG:
            break
    return size


def _sizes(value: Any, depth: int) -> Iterator[int]:
    if isinstance(value, str):
        yield num_bytes(value)
    elif depth and isinstance(value, Mapping):
        yield 64
        for item in value.values():
            yield from _sizes(item, depth - 1)
    else:
        yield 1
        if depth and isinstance(value, list | tuple):
            for item in value:
                yield from _sizes(item, depth - 1)
