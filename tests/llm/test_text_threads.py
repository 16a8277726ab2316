"""Long texts wait for each other, and nobody else for them."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.scripted_link import make_engine_client

from minisgl.core import Limits, SamplingParams
from minisgl.llm.text_threads import LONG, in_thread, prompt_size, size_of


@pytest.mark.parametrize("kind", ["prompt", "chat"])
def test_however_many_long_texts_are_tokenized_a_short_one_is_in_between(kind: str) -> None:
    client = make_engine_client(limits=Limits(300, 2**30, 2**30))
    tokenizer = client.client.tokenizer
    go_on, at_work, most = threading.Event(), [0], [0]
    encode = tokenizer.encode

    def encode_slowly(text: str) -> Any:
        if len(text) >= LONG:
            at_work[0] += 1
            most[0] = max(most[0], at_work[0])
            assert go_on.wait(60)
            at_work[0] -= 1
        return encode("x")

    def prepare(text: str) -> Any:
        if kind == "prompt":
            return client.prepare(text, SamplingParams())
        messages = [{"role": "user", "content": [{"type": "text", "text": text}]}]
        return client.prepare_chat(messages, SamplingParams(), {})

    async def main() -> None:
        long = [asyncio.ensure_future(prepare("x" * LONG)) for _ in range(100)]
        await prepare("x")
        assert not any(task.done() for task in long)
        go_on.set()
        await asyncio.gather(*long)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizer, "encode", encode_slowly)
        patch.setattr(tokenizer, "encode_rendered", encode_slowly)
        asyncio.run(asyncio.wait_for(main(), 60))
    assert most[0] == 1


def test_who_leaves_while_he_waits_for_the_thread_is_not_served() -> None:
    go_on, served = threading.Event(), []

    async def main() -> None:
        first = asyncio.ensure_future(in_thread(LONG, go_on.wait, 60))
        second = asyncio.ensure_future(in_thread(LONG, served.append, "second"))
        await asyncio.sleep(0.05)
        second.cancel()
        await asyncio.wait([second])
        go_on.set()
        assert await first
        await in_thread(LONG, served.append, "third")

    asyncio.run(main())
    assert served == ["third"]


def test_the_size_of_messages_is_that_of_their_texts() -> None:
    calls = [{"function": {"name": "f", "arguments": {"a": "z" * 100}}}]
    messages = [{"role": "user", "content": "x" * 1000}, {"role": "assistant", "content": None, "tool_calls": calls}]
    assert 1100 < size_of(messages) < 1500
    nested: Any = "x"
    for _ in range(100_000):
        nested = [nested]
    assert size_of(nested) < 10


def test_sizes_are_in_bytes() -> None:
    assert size_of(["世" * 100]) == size_of(["x" * 300])
    assert prompt_size("世" * 100) == 300
    assert prompt_size([1, 2, 3]) == 3


def test_a_size_is_counted_no_further_than_it_matters() -> None:
    class Endless(list[int]):
        def __iter__(self) -> Iterator[int]:
            return itertools.repeat(0)

    assert size_of([{"content": Endless()}]) == LONG
