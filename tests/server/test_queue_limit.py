"""A hundred requests at once, of which four run and eight wait."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import httpx
from starlette.applications import Starlette
from support.scripted_link import ScriptedLink, make_engine_client
from support.server_app import make_app, make_state

from minisgl.message import UserMsg
from minisgl.server.gate import Gate


def three_slow_tokens(request: UserMsg) -> Any:
    return [105, 0.1, 106, 0.1, 107]


async def ask_all(app: Starlette, count: int, **body: Any) -> list[httpx.Response]:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
        asks = [client.post("/v1/completions", json={"prompt": "hi", **body}) for _ in range(count)]
        return await asyncio.gather(*asks)


def test_twelve_of_a_hundred_are_answered_the_rest_told_to_come_again_and_then_twelve_more() -> None:
    link = ScriptedLink(three_slow_tokens)
    state = make_state(engine=make_engine_client(link=link), gate=Gate(max_running=4, max_queued=8))
    app = make_app(state)
    for _ in range(2):
        responses = asyncio.run(ask_all(app, 100))
        assert Counter(response.status_code for response in responses) == {200: 12, 429: 88}
        assert {len(each.json()["choices"]) for each in responses if each.status_code == 200} == {1}
        refused = next(response for response in responses if response.status_code == 429)
        assert refused.headers["retry-after"] == "1"
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert (state.gate.num_open, link.num_open) == (0, 0)
    assert state.metrics.responses == {200: 24, 429: 176}


def test_choices_count_each_and_more_than_ever_fit_are_the_clients_mistake() -> None:
    state = make_state(engine=make_engine_client(three_slow_tokens), gate=Gate(max_running=4, max_queued=0))
    app = make_app(state)
    (fits,) = asyncio.run(ask_all(app, 1, n=4))
    assert len(fits.json()["choices"]) == 4
    (never,) = asyncio.run(ask_all(app, 1, n=5))
    assert never.status_code == 400
    assert state.gate.num_open == 0
