"""What OpenAI's own client sends again, and what not."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable

import httpx
import openai
import pytest
from support.asgi import HI, Api, ids_of
from support.scripted_link import Item

from minisgl.message import UserMsg
from minisgl.server.config import ServerConfig


def slowly(request: UserMsg) -> Iterable[Item]:
    return itertools.chain.from_iterable(itertools.repeat((ids_of("x")[0], 0.05)))


def test_a_request_that_took_too_long_is_not_sent_again() -> None:
    async def test() -> None:
        api = Api(slowly, config=ServerConfig(request_timeout=0.1))
        transport = httpx.ASGITransport(api.app)
        async with (
            httpx.AsyncClient(transport=transport) as http,
            openai.AsyncOpenAI(base_url="http://server/v1", api_key="x", max_retries=2, http_client=http) as client,
        ):
            with pytest.raises(openai.InternalServerError, match="longer than the server allows"):
                await client.chat.completions.create(model="a-model", messages=HI, max_tokens=500)  # type: ignore[arg-type]
        assert len(api.link.requests) == 1

    asyncio.run(test())
