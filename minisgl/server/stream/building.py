"""Answers that take long to write are written beside the event loop, one at a time, so that other streams go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from minisgl.llm.stream import Output, choices_of
from minisgl.llm.submission import Delta
from minisgl.utils.lone_thread import LoneThread

MANY = 2048  # entries: some milliseconds
EXPLAINED = 16  # entries: what the text in an explanation takes
ENTRY_BYTES = 100  # in JSON
TOKENS_AN_ENTRY = 8  # tokens without logprobs that are written, or decoded, in the time of one entry
T = TypeVar("T")
WRITER = LoneThread("minisgl-answers")


def cost_of_events(deltas: Sequence[Delta]) -> int:
    """Entries that may have to be written for them."""
    return sum(map(num_entries, deltas))


def are_plain(deltas: Sequence[Delta]) -> bool:
    """Whether they are nothing but text, which is quickly written, and no choice ends with them."""
    for delta in deltas:  # half of what a generator costs
        if delta["finish_reason"] is not None or "logprobs" in delta or "prompt_logprobs" in delta:
            return False
    return True


def cost_of_whole(outputs: Sequence[Output]) -> int:
    """Entries of a whole answer, in which tokens count too."""
    choices = [choice for output in outputs for choice in choices_of(output)]
    num_tokens = sum(choice["prompt_tokens"] + len(choice["token_ids"]) for choice in choices)
    return sum(map(num_entries, choices)) + num_tokens // TOKENS_AN_ENTRY


def num_entries(news: Delta | Output) -> int:
    """What may have to be written for it: of logprobs a token, and each of the best at its place."""
    lists = (news.get("logprobs"), news.get("prompt_logprobs"))
    logprobs = sum(len(each) * (1 + len(each[-1].top)) for each in lists if each and each[-1] is not None)
    return logprobs + (EXPLAINED if "explanation" in news else 0)


async def build(cost: int, make: Callable[[T], bytes], news: T) -> bytes:
    """`make(news)`; cost: in entries."""
    if cost < MANY:
        return make(news)
    return await asyncio.get_running_loop().run_in_executor(WRITER, make, news)
