"""A neighbour's stream goes on, whatever the worst request costs: what takes long is not done in the event loop.

The long piece of work is made to wait until the neighbour has got more events. In the loop it would wait for ever.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest
from support.asgi import CHAT, COMPLETIONS, GENERATE, HI, Api, Exchange, ids_of
from support.scripted_link import Item

from minisgl.core import Limits
from minisgl.llm.client import Client
from minisgl.message import UserMsg
from minisgl.server.endpoints import common, tokens
from minisgl.server.gate import Gate
from minisgl.server.stream import building, logprobs
from minisgl.server.stream.chat import ChatAnswer
from minisgl.server.stream.completions import CompletionAnswer
from minisgl.server.stream.generate import GenerateAnswer

FOR_EVER = 100_000  # tokens: the neighbour's stream never ends by itself
NEIGHBOUR = (COMPLETIONS, {"prompt": "neighbour", "max_tokens": FOR_EVER, "stream": True})
OTHER_NEIGHBOUR = (GENERATE, {"text": "neighbour", "sampling_params": {"max_new_tokens": FOR_EVER}, "stream": True})
ROOM = Limits(258, 200_000, 10**6)
LONG = "x" * 480
LONG_IDS = ids_of(LONG)
TOP = {"logprobs": True, "top_logprobs": 20}
SGLANG_TOP = {"return_logprob": True, "logprob_start_len": 0, "top_logprobs_num": 20}
SHORT = {"sampling_params": {"max_new_tokens": 2}}

WORST = {
    "a chat of many choices with all logprobs": (
        ChatAnswer,
        "whole",
        CHAT,
        {"messages": HI, "n": 8, "max_tokens": 480, **TOP},
    ),
    "echoes with logprobs": (
        CompletionAnswer,
        "whole",
        COMPLETIONS,
        {"prompt": [LONG] * 10, "echo": True, "logprobs": 5, "max_tokens": 1},
    ),
    "echoes of token ids": (
        CompletionAnswer,
        "whole",
        COMPLETIONS,
        {"prompt": [LONG_IDS] * 50, "echo": True, "max_tokens": 0},
    ),
    "a streamed echo": (
        CompletionAnswer,
        "events",
        COMPLETIONS,
        {"prompt": LONG, "echo": True, "logprobs": 5, "max_tokens": 1, "stream": True},
    ),
    "the prompt's logprobs": (GenerateAnswer, "whole", GENERATE, {"text": LONG, **SGLANG_TOP, **SHORT}),
    "the prompt's logprobs in a stream": (
        GenerateAnswer,
        "events",
        GENERATE,
        {"text": LONG, **SGLANG_TOP, **SHORT, "stream": True},
    ),
    "a long text": (Client, "prepare", COMPLETIONS, {"prompt": LONG, "max_tokens": 1}),
    "a long text to count": (tokens, "_tokenized", "/tokenize", {"prompt": LONG * 10}),
    "a large body": (common, "_decode_large", COMPLETIONS, {"prompt": LONG, "max_tokens": 1, "store": LONG * 200}),
    "many messages": (common, "plain_messages", CHAT, {"messages": HI * 20, "max_tokens": 1}),
    "many messages to count": (common, "plain_messages", "/tokenize", {"messages": HI * 20}),
    "many tokens to name": (tokens, "_names", "/tokenize", {"prompt": LONG * 10, "return_token_strs": True}),
    "many tokens to decode": (tokens, "_text_of", "/detokenize", {"tokens": LONG_IDS * 10}),
}


def script(request: UserMsg) -> Iterable[Item]:
    """The neighbour's tokens come one each 5 ms, all others at once."""
    token_id = ids_of("x")[0]
    if request.sampling_params.max_tokens == FOR_EVER:
        return itertools.chain.from_iterable(itertools.repeat((token_id, 0.005)))
    return itertools.repeat((token_id,) * 16)


@pytest.mark.parametrize(("owner", "name", "path", "body"), WORST.values(), ids=WORST)
def test_a_neighbour_s_events_keep_coming(
    owner: Any, name: str, path: str, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "MANY_OBJECTS", 20)

    async def test() -> None:
        api = Api(script, limits=ROOM, gate=Gate(max_running=100, max_queued=0))
        neighbour = Exchange(api, *(OTHER_NEIGHBOUR if owner is CompletionAnswer else NEIGHBOUR))  # of another kind
        await neighbour.body()
        waited = wait_for_events(neighbour, owner, name, monkeypatch)
        heavy = Exchange(api, path, body)
        assert (await heavy.sent.get())["status"] == 200
        await heavy.rest()
        assert waited
        neighbour.leave()
        await neighbour.task
        api.check_at_rest()

    run(test)


def wait_for_events(neighbour: Exchange, owner: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """From now on `owner.name` first waits for three of the neighbour's events, once; gives what it has waited for."""
    waited: list[int] = []
    done = getattr(owner, name)

    def wait(*args: Any, **kwargs: Any) -> Any:
        if not waited:
            assert threading.current_thread() is not threading.main_thread(), f"{name} keeps the event loop"
            wanted = neighbour.sent.qsize() + 3
            waited.append(wanted)
            while neighbour.sent.qsize() < wanted:
                assert not neighbour.task.done(), f"no event came during {name}"
                time.sleep(0.001)
        return done(*args, **kwargs)

    monkeypatch.setattr(owner, name, wait)
    return waited


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_small_is_written_without_a_thread(stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "WRITER", None)
    api = Api(script)
    body = {"messages": HI, "n": 4, "max_tokens": 16, "logprobs": True, "stream": stream}
    assert api.post(CHAT, **body).status_code == 200


def test_what_is_written_costs_as_many_pieces_as_there_are_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """No call encodes more than one token's logprobs, since it keeps the interpreter to itself until it is through."""
    pieces: list[Any] = []
    note_pieces(monkeypatch, pieces)
    Api(script).whole(CHAT, messages=HI, n=3, max_tokens=32, **TOP)
    assert len(pieces) == 3 * 32
    pieces.clear()
    Api(script).whole(COMPLETIONS, prompt=["ab", "c"], echo=True, max_tokens=32, logprobs=2)
    assert len(pieces) == 2 + 1 + 2 * 32


def note_pieces(monkeypatch: pytest.MonkeyPatch, pieces: list[Any]) -> None:
    ready = logprobs.ready

    def note(value: Any) -> Any:
        pieces.append(value)
        return ready(value)

    monkeypatch.setattr(logprobs, "ready", note)


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 60))  # type: ignore[arg-type]
