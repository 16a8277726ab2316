"""`"explain": true`, of every endpoint that generates: in the headers, in the answer, and of whom it is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import pytest
from support.any_endpoint import PROMPTS, WAYS
from support.asgi import CHAT, COMPLETIONS, GENERATE, HI, Api, exchange, ids_of, says
from support.scripted_link import Item, Script
from support.tiny_model import EOS

from minisgl.core import Explanation
from minisgl.message import UserMsg
from minisgl.server.config import ServerConfig

HEADER = "x-prefix-cache"
SECRET = tuple(ids_of(" secret"))


def explained(*tail: Item, **changes: Any) -> Script:
    """Each prompt was known but for its last two tokens; then this is said, or Hello."""

    def script(request: UserMsg) -> Iterable[Item]:
        num = len(request.input_ids)
        fields = {"hit": num - 2, "never_seen": 2, "left_at": num - 2, "branch": SECRET}
        yield Explanation(**{**fields, **changes})  # type: ignore[arg-type]
        yield from tail or [*ids_of("Hello"), EOS]

    return script


def explanation_in(path: str, made: Any) -> Any:
    return (made["meta_info"] if path == GENERATE else made)["explanation"]


def asked(api: Api, path: str, stream: bool, **body: Any) -> tuple[str, Any]:
    """The header, and the answer's explanation."""
    response = api.post(path, **{**PROMPTS[path], **body}, stream=stream, explain=True)
    assert response.status_code == 200, response.text
    if not stream:
        return response.headers[HEADER], explanation_in(path, response.json())
    first, *_ = response.text.split("\n\n")
    return response.headers[HEADER], explanation_in(path, json.loads(first.removeprefix("data: ")))


@WAYS
@pytest.mark.parametrize("path", PROMPTS)
def test_the_answer_and_its_header_say_why(path: str, stream: bool) -> None:
    api = Api(explained())
    header, found = asked(api, path, stream)
    num = len(api.link.requests[-1].input_ids)
    assert found["causes"] == {
        "hit": num - 2,
        "joined": 0,
        "evicted": 0,
        "below_page": 0,
        "last_token": 0,
        "never_seen": 2,
        "not_looked_up": 0,
    }
    assert (found["prompt_tokens"], found["cached_tokens"], found["left_at"]) == (num, num - 2, num - 2)
    assert (found["evicted_s"], found["evicted_tokens"]) == (None, None)
    assert len(found["around"]["after"]) == 2 or path == CHAT
    assert header == f"hit={num - 2}, joined=0, evicted=0, below-page=0, last-token=0, never-seen=2," + (
        f" not-looked-up=0, left-at={num - 2}"
    )


@WAYS
@pytest.mark.parametrize("path", PROMPTS)
def test_who_does_not_ask_is_told_nothing(path: str, stream: bool) -> None:
    api = Api(explained())
    response = api.post(path, **PROMPTS[path], stream=stream)
    assert HEADER not in response.headers
    assert "explanation" not in response.text
    assert api.link.requests[-1].explain is False


@pytest.mark.parametrize("path", PROMPTS)
def test_a_stream_begins_with_its_headers_before_the_first_token(path: str) -> None:
    """The engine holds the first token back until the response has begun."""
    may_go_on = asyncio.Event()

    def script(request: UserMsg) -> Iterable[Item]:
        yield from explained(0.0)(request)
        while not may_go_on.is_set():
            yield 0.001
        yield from [*ids_of("Hello"), EOS]

    async def test() -> None:
        api = Api(script)
        async with exchange(api, path, **PROMPTS[path], stream=True, explain=True) as call:
            start = await asyncio.wait_for(call.sent.get(), 60)
            headers, num_known = dict(start["headers"]), len(api.link.requests[0].input_ids) - 2
            assert (start["type"], start["status"]) == ("http.response.start", 200)
            assert headers[HEADER.encode()].startswith(b"hit=")
            assert explanation_in(path, json.loads((await call.body()).split(b"data: ")[1]))["left_at"] == num_known
            assert api.state.metrics.generated_tokens == 0
            may_go_on.set()
            assert b"o" in await call.rest()

    asyncio.run(asyncio.wait_for(test(), 60))


@pytest.mark.parametrize("path", PROMPTS)
def test_what_fails_between_the_headers_and_the_first_token_is_the_streams_last_event(path: str) -> None:
    api = Api(explained(0.05, ValueError("no more power")))
    response = api.post(path, **PROMPTS[path], stream=True, explain=True)
    assert (response.status_code, HEADER in response.headers) == (200, True)
    assert json.loads(response.text.split("\n\n")[-2].removeprefix("data: "))["error"]["message"]
    api.check_at_rest()


def test_a_whole_answer_has_a_status_of_its_own_so_it_waits_for_its_end() -> None:
    api = Api(explained(*ids_of("He"), ValueError("no more power")))
    assert api.error(500, CHAT, messages=HI, explain=True)["message"]
    assert api.link.requests[-1].explain is False


@WAYS
def test_only_an_answer_of_several_choices_has_an_explanation_of_each(stream: bool) -> None:
    api = Api(explained())
    for path, body in ((CHAT, {"messages": HI}), (COMPLETIONS, {"prompt": "Hi you"})):
        for n in (1, 2):
            if stream:
                events = api.events(path, **body, n=n, explain=True)
                assert [event for event in events if "explanation" in event] == [events[0]]
                choices = [choice for event in events for choice in event["choices"] if "explanation" in choice]
            else:
                whole = api.whole(path, **body, n=n, explain=True)
                choices = [choice for choice in whole["choices"] if "explanation" in choice]
            assert [choice["index"] for choice in sorted(choices, key=lambda each: each["index"])] == [0, 1][
                : n * (n - 1)
            ]
            assert all(choice["explanation"]["causes"]["never_seen"] == 2 for choice in choices)


@WAYS
def test_of_several_prompts_there_are_sums_and_each_choice_has_its_own(stream: bool) -> None:
    api = Api(explained())
    header, found = asked(api, COMPLETIONS, stream, prompt=["Hi you", "Hello"], n=2)
    assert header.startswith("hit=7, joined=0, evicted=0, below-page=0, last-token=0, never-seen=4")
    assert "left-at" not in header
    assert (found["prompt_tokens"], found["cached_tokens"], found["causes"]["hit"]) == (11, 7, 7)
    assert (found["left_at"], found["around"]) == (None, None)
    events = api.events(COMPLETIONS, prompt=["Hi you", "Hello"], n=2, explain=True)
    own = {
        choice["index"]: choice["explanation"]["left_at"]
        for event in events
        for choice in event["choices"]
        if "explanation" in choice
    }
    assert own == {0: 4, 1: 4, 2: 3, 3: 3}


@WAYS
def test_generate_tells_it_of_each_text(stream: bool) -> None:
    api = Api(explained(*ids_of("He"), 0.05, *ids_of("y"), EOS))
    body = {"text": ["Hi you", "Hello"], "explain": True}
    if not stream:
        made = api.whole(GENERATE, **body)
        assert [item["meta_info"]["explanation"]["left_at"] for item in made] == [4, 3]
        return
    for index, left_at in ((0, 4), (1, 3)):
        events = [event for event in api.events(GENERATE, **body) if event["index"] == index]
        with_it = [number for number, event in enumerate(events) if "explanation" in event["meta_info"]]
        assert with_it == sorted({0, len(events) - 1})
        assert events[0]["meta_info"]["explanation"] == events[-1]["meta_info"]["explanation"]
        assert events[0]["meta_info"]["explanation"]["left_at"] == left_at


def test_a_stream_of_several_prompts_waits_for_the_last_to_be_admitted_and_loses_nothing() -> None:
    def script(request: UserMsg) -> Iterable[Item]:
        yield 0.2 if len(request.input_ids) == 5 else 0.0
        yield from explained()(request)

    api = Api(script)
    events = api.events(COMPLETIONS, prompt=["Hi you", "Hello"], explain=True)
    assert events[0]["explanation"]["prompt_tokens"] == 11
    texts = ["".join(c["text"] for e in events for c in e["choices"] if c["index"] == index) for index in (0, 1)]
    assert texts == ["Hello", "Hello"]


@WAYS
@pytest.mark.parametrize("path", PROMPTS)
def test_a_server_that_explains_nothing_says_null_and_has_no_header(path: str, stream: bool) -> None:
    response = Api(says("Hello")).post(path, **PROMPTS[path], stream=stream, explain=True)
    assert HEADER not in response.headers
    text = response.text.partition("\n\n")[0].removeprefix("data: ") if stream else response.text
    assert explanation_in(path, json.loads(text)) is None


@WAYS
@pytest.mark.parametrize("path", PROMPTS)
def test_nobody_is_told_what_others_have(path: str, stream: bool) -> None:
    """Neither what another prompt has from there on, nor that the rest is cached under another salt."""
    api = Api(explained(never_seen=0, other_namespace=1, last_token=1))
    response = api.post(path, **PROMPTS[path], stream=stream, explain=True, cache_salt="mine")
    assert "never-seen=2" in response.headers[HEADER]
    assert "last-token=0" in response.headers[HEADER]
    for word in ("secret", "branch", "namespace"):
        assert word not in response.text + str(response.headers)


def test_logprobs_of_the_prompt_come_with_the_first_token_and_so_does_the_explanation() -> None:
    api = Api(explained())
    events = api.events(COMPLETIONS, prompt="Hi you", echo=True, logprobs=1, explain=True)
    assert events[0]["explanation"]["prompt_tokens"] == 6
    assert events[0]["choices"][0]["text"] == "Hi you"
    assert api.link.requests[-1].explain is False


@pytest.mark.parametrize("wrong", ["yes", 1, [True]])
def test_explain_is_a_switch(wrong: Any) -> None:
    for path, body in PROMPTS.items():
        assert Api().error(400, path, **body, explain=wrong)["param"] == "explain"


def test_pages_of_other_origins_may_read_the_headers() -> None:
    api = Api(explained(), config=ServerConfig(cors_origins=("https://a.example",)))

    async def ask() -> Any:
        import httpx

        transport = httpx.ASGITransport(api.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            headers = {"origin": "https://a.example"}
            return await client.post(CHAT, json={"messages": HI, "explain": True}, headers=headers)

    shown = asyncio.run(ask()).headers["access-control-expose-headers"]
    assert {"x-prefix-cache", "x-prefix-cache-evicted-s"} <= set(shown.split(", "))
