"""Bodies as they come: packed ones are refused by name, large ones are read in turns."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib

import httpx
import pytest
from support.asgi import CHAT, COMPLETIONS, GENERATE, HI, Api, says
from support.server_app import ask

from minisgl.server.budget import Budget

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


def test_a_large_body_that_is_wrong_gives_its_room_back() -> None:
    api = Api(says("Hello"), bodies=Budget(100_000, "large bodies", patience=0.01))
    for _ in range(3):
        assert ask(api.app, "POST", CHAT, json={"messages": HI * 3000, "temperature": "hot"}).status_code == 400
    assert api.state.bodies.held == 0
