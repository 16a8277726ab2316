"""The application and its scripted engine, asked without a network: whole answers, events one by one, and leaving."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from starlette.types import Message
from support.scripted_link import Script, ScriptedLink, echo, make_engine_client
from support.server_app import ask, make_app, make_state
from support.tiny_model import EOS, make_tokenizer

from minisgl.core import Limits
from minisgl.server.config import ServerConfig
from minisgl.tokenizer import Tokenizer

TOKENIZER = Tokenizer(make_tokenizer())
HI = [{"role": "user", "content": "Hi"}]
CHAT, COMPLETIONS, GENERATE = "/v1/chat/completions", "/v1/completions", "/generate"


def ids_of(text: str) -> list[int]:
    """One token a byte."""
    return TOKENIZER.encode(text).tolist()


def says(text: str, tokens_a_step: int = 1) -> Script:
    """Whoever asks is told this text, and then its end."""
    ids = [*ids_of(text), EOS]
    return lambda request: [tuple(ids[i : i + tokens_a_step]) for i in range(0, len(ids), tokens_a_step)]


class Api:
    """A server in this process. state, link: what is behind it."""

    def __init__(
        self,
        script: Script = echo,
        *,
        cached_len: int = 0,
        config: ServerConfig | None = None,
        limits: Limits | None = None,
        tokenizer: Tokenizer = TOKENIZER,
        **changes: Any,
    ) -> None:
        self.link = ScriptedLink(script, cached_len=cached_len)
        self.engine = make_engine_client(link=self.link, tokenizer=tokenizer, limits=limits)
        self.state = make_state(config, **{"engine": self.engine, **changes})
        self.app = make_app(self.state)

    def get(self, path: str) -> httpx.Response:
        return ask(self.app, "GET", path)

    def post(self, path: str, **body: Any) -> httpx.Response:
        return ask(self.app, "POST", path, json=body)

    def post_raw(self, path: str, body: bytes, content_type: str | None = "application/json") -> httpx.Response:
        headers = {} if content_type is None else {"content-type": content_type}
        return ask(self.app, "POST", path, content=body, headers=headers)

    def whole(self, path: str, **body: Any) -> Any:
        """The answer, which must be one."""
        response = self.post(path, **body)
        assert response.status_code == 200, response.text
        return strict_json(response.content)

    def events(self, path: str, **body: Any) -> list[Any]:
        """The events of a stream that ends as it should, [DONE] left out."""
        response = self.post(path, **{"stream": True, **body})
        assert response.status_code == 200, response.text
        assert response.headers["content-type"].startswith("text/event-stream")
        return parse_events(response.content)

    def error(self, status: int, path: str, **body: Any) -> dict[str, Any]:
        """What the refusal says; and nothing may be left of the request."""
        return self.check_error(status, self.post(path, **body))

    def check_error(self, status: int, response: httpx.Response) -> dict[str, Any]:
        assert (response.status_code, response.headers["content-type"]) == (status, "application/json"), response.text
        error: dict[str, Any] = strict_json(response.content)["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert isinstance(error["message"], str)
        assert isinstance(error["code"], str | None)
        self.check_at_rest()
        return error

    def check_at_rest(self) -> None:
        """The engine hears of an abort between two steps, so it may take a moment."""
        assert self.state.gate.num_open == 0
        assert self.state.running.abort_all() == 0
        patience = 4000
        while self.link.num_open and patience:
            patience -= 1
            time.sleep(0.005)
        assert self.link.num_open == 0


class Exchange:
    """A POST whose answer is read message by message, by a client that may leave.

    room: how many messages may wait for it; 0 is any number.
    """

    def __init__(self, api: Api, path: str, body: dict[str, Any], room: int = 0) -> None:
        self.sent: asyncio.Queue[Message] = asyncio.Queue(room)
        self._left = asyncio.Event()
        self._body = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]
        headers = [(b"content-type", b"application/json"), (b"x-request-id", b"mine")]
        scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "headers": headers}
        scope |= {"query_string": b"", "root_path": "", "scheme": "http", "http_version": "1.1"}
        self.task = asyncio.ensure_future(api.app(scope, self._receive, self.sent.put))

    def leave(self) -> None:
        self._left.set()

    async def body(self) -> bytes:
        """The next piece of the answer."""
        while (message := await self.sent.get())["type"] != "http.response.body":
            pass
        piece: bytes = message["body"]
        return piece

    async def rest(self) -> bytes:
        """All that is still to come."""
        await self.task
        messages = [self.sent.get_nowait() for _ in range(self.sent.qsize())]
        return b"".join(message.get("body", b"") for message in messages)

    async def _receive(self) -> Message:
        if self._body:
            return self._body.pop()
        await self._left.wait()
        return {"type": "http.disconnect"}


@asynccontextmanager
async def exchange(api: Api, path: str, **body: Any) -> AsyncIterator[Exchange]:
    """One exchange, which must have ended within seconds; afterwards nothing of it may be left."""
    call = Exchange(api, path, body)
    yield call
    await asyncio.wait_for(call.task, 60)
    api.check_at_rest()


def parse_events(raw: bytes) -> list[Any]:
    """Every event in strict JSON, each valid for itself; the last is [DONE]."""
    *lines, done, rest = raw.split(b"\n\n")
    assert (done, rest) == (b"data: [DONE]", b"")
    assert all(line.startswith(b"data: ") for line in lines)
    return [strict_json(line.removeprefix(b"data: ")) for line in lines]


def strict_json(raw: bytes) -> Any:
    def refuse(constant: str) -> Any:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(raw.decode(), parse_constant=refuse)
