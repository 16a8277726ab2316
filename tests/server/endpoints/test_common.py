"""Packed bodies are refused by name, large ones read in turns, and large answers given while there is room for them."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import zlib
from collections.abc import Iterable
from functools import partial
from typing import Any

import httpx
import pytest
from support.asgi import CHAT, COMPLETIONS, GENERATE, HI, Api, says
from support.scripted_link import Item
from support.server_app import ask

from minisgl.core import Limits
from minisgl.message import UserMsg
from minisgl.server.budget import Budget
from minisgl.server.middleware import LARGE_ANSWER

BODY = json.dumps({"prompt": "Hi", "max_tokens": 1}).encode()
LARGE = json.dumps({"prompt": "Hi", "max_tokens": 1, "store": "x" * 90_000}).encode()
ZSTD = bytes.fromhex("28b52ffd")  # a frame begins so


async def send(api: Api, *headers: tuple[str, str], body: bytes = BODY, path: str = COMPLETIONS) -> httpx.Response:
    transport = httpx.ASGITransport(api.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return await client.post(path, content=body, headers=[("content-type", "application/json"), *headers])


@pytest.mark.parametrize(
    ("codings", "body"),
    [
        (["gzip"], gzip.compress(BODY)),
        (["GZip"], gzip.compress(BODY)),
        (["x-gzip"], gzip.compress(BODY)),
        (["deflate"], zlib.compress(BODY)),
        (["br"], BODY),
        (["zstd"], ZSTD + BODY),
        (["gzip"], BODY),
        (["gzip, br"], BODY),
        (["identity, gzip"], BODY),
        (["identity", "br"], BODY),
        (["banana"], BODY),
    ],
)
@pytest.mark.parametrize("path", [COMPLETIONS, CHAT, GENERATE, "/tokenize", "/cache/purge", "/abort_request"])
def test_a_packed_body_is_refused_by_the_name_of_the_header(path: str, codings: list[str], body: bytes) -> None:
    api = Api(says("Hello"))
    answer = asyncio.run(send(api, *(("content-encoding", each) for each in codings), body=body, path=path))
    error = api.check_error(415, answer)
    assert (error["code"], error["param"]) == ("unsupported_content_encoding", None)
    assert "Content-Encoding" in error["message"]
    assert answer.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("coding", ["identity", "Identity", "", "identity, identity", " identity "])
def test_a_body_that_is_not_packed_may_say_so(coding: str) -> None:
    assert asyncio.run(send(Api(says("Hello")), ("content-encoding", coding))).status_code == 200


def test_large_bodies_are_read_in_turns_and_small_ones_at_once() -> None:
    api = Api(says("Hello"), bodies=Budget(100_000, "large bodies", patience=60.0))

    async def test() -> None:
        async with api.state.bodies.hold(50_000):
            large = [asyncio.create_task(send(api, body=LARGE)) for _ in range(3)]
            assert (await send(api)).status_code == 200
            assert api.state.bodies.held == 50_000, "none of them is read before there is room"
        answers = await asyncio.gather(*large)
        assert [answer.status_code for answer in answers] == [200] * 3
        assert api.state.bodies.held == 0

    asyncio.run(test())


def test_a_large_body_for_which_there_is_no_room_in_time_is_a_503() -> None:
    api = Api(says("Hello"), bodies=Budget(100_000, "large bodies", patience=0.01))

    async def test() -> httpx.Response:
        async with api.state.bodies.hold(50_000):
            return await send(api, body=LARGE)

    answer = asyncio.run(test())
    assert api.check_error(503, answer)["code"] == "server_overloaded"
    assert answer.headers["retry-after"] == "1"


LONG_LIMITS = Limits(300, 100_000, 400_000)
LOGPROBS = {"messages": HI, "max_tokens": 1000, "logprobs": True, "top_logprobs": 5}
LARGE_ANSWERS = {
    "the page of documents": ("/docs", None),
    "the description": ("/openapi.json", None),
    "a file of the page": ("/ui/app.js", None),
    "token ids": ("/tokenize", {"prompt": "x" * 60_000}),
    "a text": ("/detokenize", {"tokens": [50] * 60_000}),
}


@pytest.mark.parametrize(("path", "body"), LARGE_ANSWERS.values(), ids=LARGE_ANSWERS)
def test_a_large_answer_has_no_place_beside_too_much_that_is_not_read(path: str, body: dict[str, Any] | None) -> None:
    api = Api(says("Hello"), limits=LONG_LIMITS, answers=Budget(2**26, "unread answers", patience=0.01))
    method = "GET" if body is None else "POST"
    ask_it = partial(ask, api.app, method, path, json=body, headers={"accept-encoding": "identity"})
    size = len(ask_it().content)
    api.state.answers.add(2**26 - 1000)
    answer = ask_it()
    if size < LARGE_ANSWER:
        assert answer.status_code == 200, "it fits the connection's own buffer"
    else:
        assert api.check_error(503, answer)["code"] == "server_overloaded"
        assert answer.headers["retry-after"] == "1"
    api.state.answers.remove(2**26 - 1000)
    assert len(ask_it().content) == size
    assert api.state.answers.held == 0


def many_tokens(request: UserMsg) -> Iterable[Item]:
    return itertools.repeat((50,) * 10)


@pytest.mark.parametrize("is_read", [False, True])
def test_a_large_answer_that_was_computed_waits_for_its_place(is_read: bool) -> None:
    patience = 60.0 if is_read else 0.01
    api = Api(many_tokens, limits=LONG_LIMITS, answers=Budget(2**20, "unread answers", patience))

    async def test() -> None:
        api.state.answers.add(2**20)
        asked = asyncio.create_task(send(api, body=json.dumps(LOGPROBS).encode(), path=CHAT))
        while api.state.answers.num_waiting == 0 and not asked.done():
            await asyncio.sleep(0.001)
        assert api.state.gate.num_open == 0, "its place is for others meanwhile"
        if is_read:
            api.state.answers.remove(2**20)
        assert (await asked).status_code == (200 if is_read else 503)

    asyncio.run(test())
    assert api.state.answers.held == (0 if is_read else 2**20)


def test_a_large_body_that_is_wrong_gives_its_room_back() -> None:
    api = Api(says("Hello"), bodies=Budget(100_000, "large bodies", patience=0.01))
    for _ in range(3):
        assert ask(api.app, "POST", CHAT, json={"messages": HI * 3000, "temperature": "hot"}).status_code == 400
    assert api.state.bodies.held == 0
