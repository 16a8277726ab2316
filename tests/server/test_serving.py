"""The path of every request that generates: whoever leaves, whatever dies, nothing is left behind."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

import pytest
from support.asgi import CHAT, COMPLETIONS, GENERATE, HI, Api, Exchange, exchange, ids_of, says
from support.scripted_link import Item

from minisgl.message import TokenReply, UserMsg
from minisgl.server.config import ServerConfig
from minisgl.server.gate import Gate
from minisgl.server.stream.chat import ChatAnswer

BODIES = {CHAT: {"messages": HI}, COMPLETIONS: {"prompt": "Hi"}, GENERATE: {"text": "Hi"}}
LONG = {"max_tokens": 500, "sampling_params": {"max_new_tokens": 500}}


def slowly(request: UserMsg) -> Iterable[Item]:
    """x for ever, one each 10 ms."""
    return itertools.chain.from_iterable(itertools.repeat((ids_of("x")[0], 0.05)))


def silently(request: UserMsg) -> Iterable[Item]:
    """As if it waited in the queue."""
    return itertools.repeat(0.01)


def breaks_at_3(request: UserMsg, is_heard: Callable[[], bool] = lambda: True) -> Iterable[Item]:
    """is_heard: it does not break before."""
    yield from ids_of("abc")
    while not is_heard():
        yield 0.005
    yield ValueError("the logits of row 0 hold NaN, in /home/somebody/engine.py")


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 60))  # type: ignore[arg-type]


def ending_of(api: Api) -> tuple[int, dict[str, int]]:
    return len(api.link.aborted), {name: count for name, count in api.state.metrics.aborted.items() if count}


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, GENERATE])
@pytest.mark.parametrize("script", [slowly, silently])
def test_a_client_that_leaves_without_stream_aborts_its_request(path: str, script: Any) -> None:
    async def test() -> None:
        api = Api(script)
        async with exchange(api, path, **BODIES[path], **LONG) as call:
            while not api.link.num_open:
                await asyncio.sleep(0.005)
            call.leave()
        assert await call.rest() == b""
        assert ending_of(api) == (1, {"disconnect": 1})

    run(test)


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, GENERATE])
def test_a_client_that_leaves_a_stream_aborts_its_request(path: str) -> None:
    async def test() -> None:
        api = Api(slowly)
        async with exchange(api, path, **BODIES[path], **LONG, stream=True) as call:
            for _ in range(3):
                assert (await call.body()).startswith(b"data: ")
            call.leave()
        assert ending_of(api) == (1, {"disconnect": 1})

    run(test)


def test_a_client_that_leaves_while_its_prompt_is_tokenized_starts_nothing() -> None:
    async def test() -> None:
        api = Api(slowly)
        is_tokenizing = asyncio.Event()

        async def prepare(*args: Any, **kwargs: Any) -> Any:
            is_tokenizing.set()
            await asyncio.sleep(60)

        api.engine.prepare = prepare  # type: ignore[method-assign]
        async with exchange(api, COMPLETIONS, prompt="Hi") as call:
            await is_tokenizing.wait()
            call.leave()
        assert api.link.requests == []

    run(test)


def test_all_choices_end_when_the_client_leaves_after_the_first_ended() -> None:
    def script(request: UserMsg) -> Iterable[Item]:
        return ids_of("ab") if request.uid == 0 else slowly(request)

    async def test() -> None:
        api = Api(script)
        async with exchange(api, CHAT, messages=HI, n=3, stream=True) as call:
            while b'"finish_reason":"length"' not in await call.body():
                pass
            call.leave()
        assert sorted(api.link.aborted) == [1, 2]

    run(test)


def test_fifty_clients_that_leave_at_once_leave_nothing_behind() -> None:
    async def test() -> None:
        api = Api(slowly)
        calls = [Exchange(api, CHAT, {"messages": HI, "stream": i % 2 == 0}) for i in range(50)]
        while api.link.num_open < 50:
            await asyncio.sleep(0.005)
        for call in calls:
            call.leave()
        await asyncio.gather(*(call.task for call in calls))
        assert api.state.metrics.aborted["disconnect"] == 50
        api.check_at_rest()

    run(test)


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, GENERATE])
@pytest.mark.parametrize("script", [slowly, silently])
def test_a_request_that_takes_too_long_gets_an_error(path: str, script: Any) -> None:
    api = Api(script, config=ServerConfig(request_timeout=0.1))
    response = api.post(path, **BODIES[path], **LONG)
    assert api.check_error(503, response)["code"] == "request_timeout"
    assert response.headers["x-should-retry"] == "false"  # which OpenAI's clients obey
    assert ending_of(api) == (1, {"timeout": 1})


def last_event(raw: bytes) -> Any:
    """A stream that broke ends with its error, and nothing else."""
    *_, last, rest = raw.split(b"\n\n")
    assert rest == b""
    return json.loads(last.removeprefix(b"data: "))


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, GENERATE])
def test_a_stream_that_takes_too_long_ends_with_an_error(path: str) -> None:
    api = Api(slowly, config=ServerConfig(request_timeout=0.1))
    response = api.post(path, **BODIES[path], **LONG, stream=True)
    assert last_event(response.content)["error"]["code"] == "request_timeout"
    api.check_at_rest()


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, GENERATE])
def test_an_error_in_the_engine_is_told_without_our_insides(path: str) -> None:
    api = Api(breaks_at_3)
    response = api.post(path, **BODIES[path])
    assert api.check_error(500, response)["type"] == "server_error"
    assert "somebody" not in response.text
    assert api.state.metrics.aborted["error"] == 1


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, GENERATE])
def test_an_error_in_the_engine_is_told_in_the_stream_without_our_insides(path: str) -> None:
    async def test() -> None:
        is_heard = threading.Event()
        api = Api(partial(breaks_at_3, is_heard=is_heard.is_set))
        async with exchange(api, path, **BODIES[path], stream=True) as call:
            assert (await call.sent.get())["status"] == 200
            await call.body()
            is_heard.set()
        raw = await call.rest()
        assert last_event(raw)["error"]["type"] == "server_error"
        assert b"somebody" not in raw
        assert b"[DONE]" not in raw
        assert api.state.metrics.aborted["error"] == 1

    run(test)


@pytest.mark.parametrize("error", [KeyError("insides"), RuntimeError("insides"), TimeoutError("insides")])
@pytest.mark.parametrize("stream", [False, True])
def test_a_mistake_of_ours_is_told_in_the_stream_and_logged(
    stream: bool, error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> bytes:
        raise error

    monkeypatch.setattr(ChatAnswer, "end" if stream else "whole", fail)
    api = Api(says("Hello"))
    response = api.post(CHAT, messages=HI, stream=stream)
    told = last_event(response.content)["error"] if stream else api.check_error(500, response)
    assert (told["type"], told["code"]) == ("server_error", None)
    assert "insides" not in response.text
    assert caplog.records[-1].exc_info is not None
    assert caplog.records[-1].exc_info[1] is error
    api.check_at_rest()


@pytest.mark.parametrize("stream", [False, True])
def test_one_broken_choice_ends_the_request_and_no_neighbour(stream: bool) -> None:
    def script(request: UserMsg) -> Iterable[Item]:
        return {0: slowly, 1: breaks_at_3}.get(request.uid, says("fine"))(request)

    async def test() -> None:
        api = Api(script)
        async with exchange(api, CHAT, messages=HI, n=2, stream=stream) as broken:
            pass
        async with exchange(api, CHAT, messages=HI) as neighbour:
            pass
        assert b'"error"' in await broken.rest()
        assert b"fine" in await neighbour.rest()
        assert 0 in api.link.aborted

    run(test)


@pytest.mark.parametrize("stream", [False, True])
def test_every_open_request_hears_when_the_engine_dies(stream: bool) -> None:
    async def test() -> None:
        api = Api(slowly)
        calls = [Exchange(api, path, {**body, **LONG, "stream": stream}) for path, body in BODIES.items()]
        while api.link.num_open < 3:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.05)
        api.link.die("killed in /home/somebody")
        for call in calls:
            if not stream:
                assert (await call.sent.get())["status"] == 503
            raw = await call.rest()
            assert (last_event(raw) if stream else json.loads(raw))["error"]["code"] == "engine_dead"
            assert b"somebody" not in raw
        api.check_at_rest()

    run(test)


def test_who_comes_after_the_engine_died_gets_an_error() -> None:
    api = Api()
    api.link.die()
    for path, body in BODIES.items():
        for stream in (False, True):
            assert api.error(503, path, **body, stream=stream)["code"] == "engine_dead"
    assert api.get("/health_generate").status_code == 503
    assert api.get("/get_server_info").status_code == 503
    assert api.post("/flush_cache").status_code == 503
    assert api.post("/cache/probe", prompt="x").status_code == 503
    assert api.post("/cache/purge", all_salts=True).status_code == 503


@pytest.mark.parametrize("stream", [False, True])
def test_requests_that_the_engine_aborts_as_it_shuts_down_get_an_error(stream: bool) -> None:
    api = Api(lambda request: [TokenReply(0, finish_reason="abort")])
    assert api.error(503, CHAT, messages=HI, stream=stream)["code"] == "server_shutting_down"


@pytest.mark.parametrize("stream", [False, True])
def test_requests_that_outlast_the_draining_are_told_so_when_the_engine_had_to_be_killed(stream: bool) -> None:
    async def test() -> None:
        api = Api(slowly)
        call = Exchange(api, CHAT, {"messages": HI, **LONG, "stream": stream})
        while not api.link.num_open:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.05)
        api.state.gate.drain()
        api.link._router.close("the engine was shut down")
        raw = await call.rest()
        assert (last_event(raw) if stream else json.loads(raw))["error"]["code"] == "server_shutting_down"

    run(test)


@pytest.mark.parametrize(
    "path", [CHAT, COMPLETIONS, GENERATE, "/tokenize", "/detokenize", "/cache/probe", "/cache/purge", "/flush_cache"]
)
def test_while_it_loads_nothing_is_served(path: str) -> None:
    assert Api(engine=None).error(503, path, **BODIES.get(path, {}))["code"] == "model_loading"


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, GENERATE])
def test_too_many_at_once_are_refused_and_room_comes_back(path: str) -> None:
    async def test() -> None:
        api = Api(slowly, gate=Gate(max_running=2, max_queued=1))
        calls = [Exchange(api, path, {**BODIES[path], **LONG, "stream": True}) for _ in range(10)]
        while api.link.num_open < 3 or len(refused := [call for call in calls if call.task.done()]) < 7:
            await asyncio.sleep(0.005)
        assert len(refused) == 7
        start = await refused[0].sent.get()
        assert (start["status"], dict(start["headers"])[b"retry-after"]) == (429, b"1")
        for call in calls:
            call.leave()
        await asyncio.gather(*(call.task for call in calls))
        api.check_at_rest()

    run(test)


def test_the_gate_counts_every_choice_of_every_prompt() -> None:
    api = Api(says("x"), gate=Gate(max_running=4, max_queued=2))
    assert api.whole(COMPLETIONS, prompt=["a", "b"], n=3)["choices"]
    api.error(400, COMPLETIONS, prompt=["a", "b"], n=4)


@pytest.mark.parametrize("stream", [False, True])
def test_who_reads_slowly_keeps_no_place_once_the_engine_is_done(stream: bool) -> None:
    async def test() -> None:
        api = Api(lambda request: [*ids_of("Hel"), 0.05, *ids_of("lo")], gate=Gate(max_running=1, max_queued=0))
        slow = Exchange(api, CHAT, {"messages": HI, "stream": stream}, room=1)
        while not api.link.requests or api.link.num_open or api.state.gate.num_open:
            await asyncio.sleep(0.005)
        assert not slow.task.done()
        assert b"Hello" in await Exchange(api, CHAT, {"messages": HI}).rest()
        pieces = []
        while not slow.task.done() or slow.sent.qsize():
            pieces.append((await slow.sent.get()).get("body", b""))
            await asyncio.sleep(0)
        assert (b"[DONE]" if stream else b"Hello") in b"".join(pieces)
        api.check_at_rest()

    run(test)


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, GENERATE])
def test_with_no_room_nothing_is_tokenized_and_the_body_is_not_even_read(path: str) -> None:
    async def test() -> None:
        api = Api(slowly, gate=Gate(max_running=1, max_queued=1))
        is_tokenizing = asyncio.Event()

        async def prepare(*args: Any, **kwargs: Any) -> Any:
            assert not is_tokenizing.is_set(), "a second one is tokenized"
            is_tokenizing.set()
            await asyncio.sleep(60)

        api.engine.prepare = api.engine.prepare_chat = prepare  # type: ignore[method-assign]
        calls = [Exchange(api, COMPLETIONS, {"prompt": "Hi", "n": 2})]
        await is_tokenizing.wait()
        for body in (BODIES[path], {"n": "nonsense"}):
            refused = Exchange(api, path, body)
            assert (await refused.sent.get())["status"] == 429
            calls.append(refused)
        for call in calls:
            call.leave()
        await asyncio.gather(*(call.task for call in calls))
        api.check_at_rest()

    run(test)


def test_one_bad_prompt_is_an_error_for_all_and_starts_none() -> None:
    api = Api(says("x"))
    for bad in ("y" * 600, ""):
        assert api.error(400, COMPLETIONS, prompt=["a", "b", bad])["param"] == "prompt[2]"
    assert api.link.requests == []


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, GENERATE])
@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_over_the_context_is_refused_with_both_numbers(path: str, stream: bool) -> None:
    api = Api(says("x"))
    text = "y" * 600
    bodies = {
        CHAT: {"messages": [{"role": "user", "content": text}]},
        COMPLETIONS: {"prompt": text},
        GENERATE: {"text": text},
    }
    error = api.error(400, path, **bodies[path], stream=stream)
    assert error["code"] == "context_length_exceeded"
    assert "512" in error["message"]
    assert "6" in error["message"]


def test_a_maximum_over_the_context_is_cut() -> None:
    api = Api()
    body = api.whole(COMPLETIONS, prompt=ids_of("y" * 500), max_tokens=100)
    assert body["choices"][0]["finish_reason"] == "length"


def test_the_observer_hears_of_a_request_from_its_start_to_its_end() -> None:
    api = Api(says("Hello"), cached_len=2)
    api.whole(COMPLETIONS, prompt=["abc", "de"])
    metrics = api.state.metrics
    assert (metrics.prompt_tokens, metrics.generated_tokens, metrics.finished["stop"]) == (5, 12, 2)
    assert not ending_of(api)[1]
