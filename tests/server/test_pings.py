"""A stream is never silent for long: comments are written where nothing else is, and nothing else changes."""

from __future__ import annotations

import asyncio
import itertools
import json
import selectors
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from support.asgi import CHAT, COMPLETIONS, GENERATE, HI, Api, Exchange, ids_of, parse_events, says
from support.scripted_link import Item
from support.tiny_model import EOS

from minisgl.core import Explanation, Limits
from minisgl.message import UserMsg
from minisgl.server.config import ServerConfig
from minisgl.server.http import HttpServer
from minisgl.server.listener import listen
from minisgl.server.response_writer import ResponseWriter

PING = b": ping\n\n"
OFTEN = ServerConfig(stream_ping_interval=0.02)
BODIES = {
    "a chat": (CHAT, {"messages": HI}),
    "choices of a chat": (CHAT, {"messages": HI, "n": 2}),
    "an explained chat": (CHAT, {"messages": HI, "explain": True}),
    "logprobs and usage": (CHAT, {"messages": HI, "logprobs": True, "stream_options": {"include_usage": True}}),
    "a completion": (COMPLETIONS, {"prompt": "Hi"}),
    "an echo": (COMPLETIONS, {"prompt": "Hi", "echo": True, "logprobs": 1}),
    "prompts": (COMPLETIONS, {"prompt": ["Hi", "Ho"], "explain": True}),
    "SGLang's form": (GENERATE, {"text": "Hi"}),
    "texts in SGLang's form": (GENERATE, {"text": ["Hi", "Ho"], "explain": True, "sampling_params": {"n": 2}}),
}
EXPLANATION = Explanation(hit=0, joined=0, evicted=0, below_page=0, other_namespace=0, last_token=0, never_seen=3)


class Gaps:
    """A script that is silent until `num_pings` reaches 2, and once more until it reaches 4."""

    def __init__(self) -> None:
        self.num_pings = 0

    def __call__(self, request: UserMsg) -> Iterable[Item]:
        while self.num_pings < 2:
            yield 0.005
        yield from ids_of("Hel")
        while self.num_pings < 4:
            yield 0.005
        yield from ids_of("lo")
        yield EOS


async def read(api: Api, gaps: Gaps | None, path: str, body: dict[str, Any]) -> bytes:
    """The stream's bytes."""
    call, raw = Exchange(api, path, {"stream": True, **body}), b""
    while not call.task.done() or not call.sent.empty():
        message = await asyncio.wait_for(call.sent.get(), 60)
        raw += message.get("body", b"")
        if gaps is not None:
            gaps.num_pings = raw.count(PING)
        if message["type"] == "http.response.body" and not message.get("more_body"):
            break
    await call.task
    api.check_at_rest()
    return raw


def without_what_varies(raw: bytes) -> list[Any]:
    """The events, their texts joined by choice: what comes in one event depends on when it is read."""
    return [sorted(texts_of(parse_events(raw)).items()), finishes_of(parse_events(raw))]


def texts_of(events: list[Any]) -> dict[int, str]:
    texts: dict[int, str] = {}
    for event in events:
        if "text" in event:
            texts[event.get("index", 0)] = event["text"]
        for choice in event.get("choices", ()):
            text = choice.get("text") or choice.get("delta", {}).get("content") or ""
            texts[choice["index"]] = texts.get(choice["index"], "") + text
    return texts


def finishes_of(events: list[Any]) -> int:
    reasons = [choice["finish_reason"] for event in events for choice in event.get("choices", ())]
    reasons += [event["meta_info"]["finish_reason"] for event in events if "meta_info" in event]
    return sum(reason is not None for reason in reasons)


@pytest.mark.parametrize(("path", "body"), BODIES.values(), ids=BODIES)
def test_silence_is_filled_with_comments_before_the_first_token_and_between_tokens(
    path: str, body: dict[str, Any]
) -> None:
    gaps = Gaps()
    raw = asyncio.run(read(Api(gaps, config=OFTEN), gaps, path, body))
    assert raw.startswith(PING * 2)
    assert raw.count(PING) >= 4
    plain = asyncio.run(read(Api(says("Hello")), None, path, body))
    assert without_what_varies(raw.replace(PING, b"")) == without_what_varies(plain)


@pytest.mark.parametrize(("path", "body"), BODIES.values(), ids=BODIES)
def test_an_answer_that_begins_sooner_has_no_comment(path: str, body: dict[str, Any]) -> None:
    raw = asyncio.run(read(Api(says("Hello"), config=ServerConfig()), None, path, body))
    assert b": ping" not in raw


@pytest.mark.parametrize("stream", [False, True])
def test_pings_can_be_turned_off_and_whole_answers_have_none(stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ResponseWriter, "keep_alive", None)
    config = ServerConfig(stream_ping_interval=0) if stream else OFTEN
    assert Api(says("Hello"), config=config).post(CHAT, messages=HI, stream=stream).status_code == 200


class Skipping(asyncio.SelectorEventLoop):
    """Its time passes at once."""

    def __init__(self) -> None:
        self.now = 0.0
        skip = self._skip

        class Selector(selectors.DefaultSelector):
            def select(self, timeout: float | None = None) -> Any:
                skip(timeout or 0)
                return super().select(0)

        super().__init__(Selector())

    def _skip(self, seconds: float) -> None:
        self.now += max(0.0, seconds)

    def time(self) -> float:
        return self.now


@pytest.mark.parametrize("written_at", [(), (0.1,), (1.99,), (2.01,), (3, 9.9, 10.1), (7.99, 8.01), (20.01,)])
def test_no_silence_is_longer_than_the_interval_whenever_the_last_byte_was_written(
    written_at: tuple[float, ...],
) -> None:
    sent = [0.0]

    async def test() -> None:
        loop = asyncio.get_running_loop()

        async def send(message: Any) -> None:
            if message["type"] == "http.response.body":
                sent.append(loop.time())

        writer = ResponseWriter({}, send)
        writer.keep_alive(10)
        for at in written_at:
            await asyncio.sleep(at - loop.time())
            await writer.write(b"data")
        await asyncio.sleep(60 - loop.time())
        writer.stop_pinging()

    with asyncio.Runner(loop_factory=Skipping) as runner:
        runner.run(test())
    gaps = [after - before for before, after in itertools.pairwise([*sent, 60])]
    assert max(gaps) <= 10 + 1e-6
    assert sum(gap >= 8 - 1e-6 for gap in gaps) >= 4, "comments come only after a silence"


def test_an_explanation_comes_first_of_all_events_however_late_it_is() -> None:
    gaps = Gaps()

    def script(request: UserMsg) -> Iterable[Item]:
        while gaps.num_pings < 2:
            yield 0.005
        yield EXPLANATION
        while gaps.num_pings < 4:
            yield 0.005
        yield from [*ids_of("Hello"), EOS]

    raw = asyncio.run(read(Api(script, config=OFTEN), gaps, COMPLETIONS, {"prompt": ["Hi", "Ho"], "explain": True}))
    first, *rest = parse_events(raw.replace(PING, b""))
    assert first["explanation"]["causes"]["never_seen"] == 4
    assert not any("explanation" in event for event in rest)
    assert texts_of([first, *rest]) == {0: "Hello", 1: "Hello"}


def test_over_a_connection_nothing_of_a_prompt_overtakes_the_explanation_of_another() -> None:
    """There what comes while the reader waits is written at once, as soon as a comment has begun the stream."""
    gaps = Gaps()

    def script(request: UserMsg) -> Iterable[Item]:
        while gaps.num_pings < (2 if request.input_ids[-1] == ids_of("o")[-1] else 1):
            yield 0.005
        yield EXPLANATION
        yield from ids_of("Hel")
        while gaps.num_pings < 3:
            yield 0.005
        yield from [*ids_of("lo"), EOS]

    async def test() -> None:
        api, raw = Api(script, config=OFTEN), b""
        with listen("127.0.0.1", 0) as listener:
            server = HttpServer(api.app, listener)
            server.start()
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            body = json.dumps({"prompt": ["Hi", "Ho"], "explain": True, "stream": True}).encode()
            head = (
                b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
            )
            writer.write(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            while piece := await reader.read(2**16):
                raw += piece
                gaps.num_pings = raw.count(PING)
            writer.close()
            await server.stop(5)
        events = [json.loads(line[6:]) for line in raw.splitlines() if line.startswith(b"data: {")]
        assert events[0]["explanation"]["causes"]["never_seen"] == 4
        assert not any("explanation" in event for event in events[1:])
        assert texts_of(events) == {0: "Hello", 1: "Hello"}

    run(test)


def test_what_fails_after_a_comment_is_an_event() -> None:
    gaps = Gaps()

    def script(request: UserMsg) -> Iterable[Item]:
        while gaps.num_pings < 1:
            yield 0.005
        yield ValueError("no more")

    raw = asyncio.run(read(Api(script, config=OFTEN), gaps, CHAT, {"messages": HI}))
    *_, last = raw.removesuffix(b"\n\n").split(b"\n\n")
    assert json.loads(last.removeprefix(b"data: "))["error"]["type"] == "server_error"


@pytest.mark.parametrize(("body", "param"), [({"temperature": 3}, "temperature"), ({"prompt": "x" * 2000}, "prompt")])
def test_what_is_known_before_keeps_its_status(body: dict[str, Any], param: str) -> None:
    api = Api(says("Hello"), config=ServerConfig(stream_ping_interval=50), limits=Limits(300, 20, 400))
    response = api.post(COMPLETIONS, **{"prompt": "Hi", "stream": True, **body})
    assert response.headers["content-type"] == "application/json"
    assert api.check_error(400, response)["param"] == param


def test_a_client_that_leaves_during_the_silence_leaves_nothing() -> None:
    async def test() -> None:
        num_tasks = len(asyncio.all_tasks())
        api = Api(lambda request: itertools.repeat(0.005), config=OFTEN)
        call = Exchange(api, CHAT, {"messages": HI, "stream": True})
        assert await call.body() == PING
        call.leave()
        await call.task
        api.check_at_rest()
        assert len(asyncio.all_tasks()) == num_tasks

    run(test)


def test_a_reader_that_takes_nothing_gets_one_comment_and_not_one_each_time() -> None:
    async def test() -> None:
        gaps = Gaps()
        api = Api(gaps, config=ServerConfig(stream_ping_interval=0.001))
        call = Exchange(api, CHAT, {"messages": HI, "stream": True}, room=1)
        while not call.sent.full():
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        num_tasks = len(asyncio.all_tasks())
        await asyncio.sleep(0.05)
        assert len(asyncio.all_tasks()) == num_tasks, "only one comment waits to be taken"
        gaps.num_pings = 4
        while (message := await call.sent.get())["type"] != "http.response.body" or message.get("more_body"):
            pass
        await call.task
        api.check_at_rest()

    run(test)


def run(test: Callable[[], Any]) -> None:
    asyncio.run(asyncio.wait_for(test(), 60))
