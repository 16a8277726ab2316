"""The link's thread and the event loop's, when one comes between two steps of the other."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from support.scripted_link import make_engine_client, tokens

import minisgl.llm.client
from minisgl.core import SamplingParams
from minisgl.llm import Delta, Output
from minisgl.llm.stream import RequestStream, join_choices


def test_a_reader_that_comes_while_the_last_delta_is_made_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    is_joining = threading.Event()

    def join_slowly(streams: list[RequestStream]) -> Output:
        is_joining.set()
        time.sleep(0.1)  # the reader comes meanwhile; it may have to wait for this
        return join_choices(streams)

    async def test() -> list[Delta]:
        client = make_engine_client(lambda request: [*tokens("abc"), 0.01])
        run = client.start([await client.prepare("hi", SamplingParams(max_tokens=8))])
        deltas = await anext(run)
        await asyncio.to_thread(is_joining.wait)
        async for more in run:
            deltas += more
        return deltas

    monkeypatch.setattr(minisgl.llm.client, "join_choices", join_slowly)
    deltas = asyncio.run(test())
    assert deltas[-1]["output"]["text"] == "abc"
