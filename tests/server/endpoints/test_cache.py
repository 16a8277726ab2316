"""Asking what is cached, and having it forgotten."""

from __future__ import annotations

from typing import Any

import pytest
from support.asgi import CHAT, COMPLETIONS, GENERATE, HI, TOKENIZER, Api, ids_of
from support.server_app import ask
from support.tiny_model import BOS

from minisgl.core import Explanation, Limits
from minisgl.server.config import ServerConfig

PROBE, EXPLAIN, PURGE = "/cache/probe", "/cache/explain", "/cache/purge"
BODIES: dict[str, dict[str, Any]] = {GENERATE: {"text": "Hi"}, COMPLETIONS: {"prompt": "Hi"}, CHAT: {"messages": HI}}


@pytest.fixture
def api() -> Api:
    return Api(cached_len=5)


def test_a_probe_asks_for_the_tokens_that_a_request_would_have(api: Api) -> None:
    api.whole(CHAT, messages=HI, max_tokens=1)
    chat = api.link.requests[-1].input_ids.tolist()
    for body, ids in [
        ({"prompt": "Hi you"}, ids_of("Hi you")),
        ({"input_ids": [5, 6]}, [5, 6]),
        ({"messages": HI}, chat),
    ]:
        assert api.whole(PROBE, **body) == {"prompt_tokens": len(ids), "cached_tokens": 5}
        assert api.link.probes[-1].input_ids.tolist() == ids
    assert len(api.link.requests) == 1


def test_a_probe_looks_under_its_salt(api: Api) -> None:
    for body, salt in [({"cache_salt": "mine"}, "mine"), ({"cache_salt": None}, ""), ({}, "")]:
        api.whole(PROBE, prompt="Hi", **body)
        assert api.link.probes[-1].cache_salt == salt


def test_a_prompt_of_the_whole_context_can_be_probed(api: Api) -> None:
    assert api.whole(PROBE, input_ids=[1] * 512)["prompt_tokens"] == 512
    for body in ({"input_ids": [1] * 513}, {"prompt": "x" * 513}):
        error = api.error(400, PROBE, **body)
        assert (error["param"], error["code"]) == (next(iter(body)), "context_length_exceeded")


@pytest.mark.parametrize(
    "body", [{}, {"prompt": "x", "messages": HI}, {"prompt": "x", "input_ids": [1]}, {"prompt": ""}]
)
def test_a_probe_wants_one_prompt(api: Api, body: dict[str, Any]) -> None:
    for path in (PROBE, EXPLAIN):
        assert api.error(400, path, **body)["param"] == "prompt"


def test_an_explanation_is_of_the_tokens_that_a_request_would_have_with_the_text_of_each_cause(api: Api) -> None:
    text = "You are 🦀. It is 12:07."
    num = len(ids_of(text))
    api.link.explanation = Explanation(hit=10, never_seen=num - 10, left_at=10, branch=tuple(ids_of("secret")))
    found = api.whole(EXPLAIN, prompt=text, cache_salt="mine")
    assert (api.link.probes[-1].input_ids.tolist(), api.link.probes[-1].cache_salt) == (ids_of(text), "mine")
    assert found["segments"] == [
        {"cause": "hit", "tokens": 10, "text": "You are "},
        {"cause": "never_seen", "tokens": num - 10, "text": "🦀. It is 12:07."},
    ]
    assert found["around"] == {"before": "u are ", "after": "🦀. It i"}
    assert (found["prompt_tokens"], found["cached_tokens"], found["left_at"]) == (num, 10, 10)
    assert api.link.requests == []


def test_a_server_that_explains_nothing_says_so() -> None:
    api = Api(limits=Limits(300, 512, 2048, explains=False))
    assert "--no-explain" in api.error(404, EXPLAIN, prompt="Hi")["message"]


def test_a_chat_and_token_ids_are_explained_as_they_would_be_computed(api: Api) -> None:
    for body in ({"messages": HI}, {"input_ids": [5, 6, 7]}):
        api.link.explanation = Explanation(never_seen=3)
        found = api.whole(EXPLAIN, **body)
        ids = api.link.probes[-1].input_ids.tolist()
        assert found["prompt_tokens"] == len(ids)
    assert ids == [5, 6, 7]
    assert "".join(segment["text"] for segment in found["segments"]) == TOKENIZER.decode(ids, False)


def test_an_explanation_never_says_what_others_have(api: Api) -> None:
    api.link.explanation = Explanation(hit=1, other_namespace=4, last_token=1, left_at=1, branch=tuple(ids_of("xyz")))
    response = api.post(EXPLAIN, prompt="Hi you")
    assert response.json()["causes"]["never_seen"] == 5
    assert [segment["cause"] for segment in response.json()["segments"]] == ["hit", "never_seen"]
    assert "xyz" not in response.text
    assert "namespace" not in response.text


@pytest.mark.parametrize("path", [PROBE, EXPLAIN, PURGE])
@pytest.mark.parametrize(
    "body", [{"input_ids": []}, {"input_ids": [300]}, {"input_ids": ["a"]}, {"messages": []}, {"cache_salt": ""}]
)
def test_what_no_request_can_have_is_refused_by_name(api: Api, path: str, body: dict[str, Any]) -> None:
    more = {"prompt": "x y"} if "cache_salt" in body else {}
    assert api.error(400, path, **body, **more)["param"].partition("[")[0] == next(iter(body))


@pytest.mark.parametrize("path", [PROBE, EXPLAIN, PURGE])
def test_another_model_has_another_cache(api: Api, path: str) -> None:
    assert api.error(404, path, prompt="Hi you", model="another")["code"] == "model_not_found"


def test_a_purge_says_what_it_freed(api: Api) -> None:
    assert api.whole(PURGE, all_salts=True) == {"freed_tokens": 7, "success": True}


@pytest.mark.parametrize(
    ("body", "salt"),
    [
        ({"prompt": "a b"}, ""),
        ({"cache_salt": "mine"}, "mine"),
        ({"all_salts": True}, None),
        ({"all_salts": False}, ""),
    ],
)
def test_a_purge_is_of_one_salt_unless_it_says_all(api: Api, body: dict[str, Any], salt: str | None) -> None:
    api.whole(PURGE, **body)
    assert api.link.purges[-1].cache_salt == salt
    assert len(api.link.purges[-1].prefix) == ("prompt" in body)


@pytest.mark.parametrize(
    ("body", "param"),
    [({}, "prompt"), ({"txt": "a b"}, "prompt"), ({"prompt": None}, "prompt"), ({"promt": "a"}, "promt")],
)
def test_a_purge_of_nothing_in_particular_is_a_misspelt_one(api: Api, body: dict[str, Any], param: str) -> None:
    assert api.error(400, PURGE, **body)["param"] == param
    assert api.link.purges == []


def test_a_text_s_last_word_is_not_asked_for_as_its_tokens_may_be_others_when_it_goes_on(api: Api) -> None:
    for text in ("Hi you", "Hi y", "Hi "):
        api.whole(PURGE, prompt=text)
        assert api.link.purges[-1].prefix.tolist() == ids_of("Hi")


@pytest.mark.parametrize("text", ["", "Hi"])
def test_a_text_of_one_word_says_too_little_to_purge(api: Api, text: str) -> None:
    error = api.error(400, PURGE, prompt=text)
    assert error["param"] == "prompt"
    assert "one word" in error["message"]
    assert api.link.purges == []


@pytest.mark.parametrize("body", [{"input_ids": [1] * 600}, {"prompt": "x y " * 300}, {"messages": HI * 100}])
def test_what_is_longer_than_any_prompt_is_no_prefix_of_one(api: Api, body: dict[str, Any]) -> None:
    error = api.error(400, PURGE, **body)
    assert (error["param"], error["code"]) == (next(iter(body)), "context_length_exceeded")
    assert api.link.purges == []


def test_token_ids_are_purged_as_they_are(api: Api) -> None:
    api.whole(PURGE, input_ids=[3, 4], cache_salt="mine")
    assert (api.link.purges[-1].prefix.tolist(), api.link.purges[-1].cache_salt) == ([3, 4], "mine")


def test_a_chat_is_purged_with_all_that_came_after_it(api: Api) -> None:
    """Its prefix ends with the last message: an answer follows, or another message."""
    longer = [*HI, {"role": "assistant", "content": "Yes"}, {"role": "user", "content": "No"}]
    whole = api.whole("/tokenize", messages=longer)["tokens"]
    api.whole(PURGE, messages=HI)
    prefix = api.link.purges[-1].prefix.tolist()
    assert prefix == [BOS, *ids_of("user: Hi")]
    assert whole[: len(prefix)] == prefix
    api.whole(PURGE, messages=HI, add_generation_prompt=True)
    assert len(api.link.purges[-1].prefix) == len(prefix) + 1


def test_a_purge_of_one_salt_and_of_all_is_a_contradiction(api: Api) -> None:
    assert api.error(400, PURGE, cache_salt="mine", all_salts=True)["param"] == "cache_salt"
    assert api.error(400, PURGE, prompt="a b", input_ids=[1])["param"] == "prompt"


def test_only_who_has_the_key_asks_and_purges() -> None:
    api = Api(config=ServerConfig(api_key="k"))
    for path in (PROBE, EXPLAIN, PURGE):
        assert api.post(path, prompt="Hi you").status_code == 401
        headers = {"authorization": "Bearer k"}
        assert ask(api.app, "POST", path, json={"prompt": "Hi you"}, headers=headers).status_code == 200


def test_a_priority_reaches_an_engine_that_heeds_it() -> None:
    api = Api(limits=Limits(300, 512, 2048, heeds_priority=True))
    for path, body in BODIES.items():
        for given, priority in [({"priority": -(2**31)}, -(2**31)), ({"priority": None}, 0), ({}, 0)]:
            api.whole(path, **body, **given)
            assert api.link.requests[-1].priority == priority
        for wrong in (2**31, -(2**31) - 1, 1.5, True, "1"):
            assert api.error(400, path, **body, priority=wrong)["param"] == "priority"


@pytest.mark.parametrize("path", BODIES)
def test_a_priority_that_would_change_nothing_is_refused_and_the_flags_are_named(api: Api, path: str) -> None:
    error = api.error(400, path, **BODIES[path], priority=3)
    assert (error["param"], error["code"]) == ("priority", "unsupported_parameter")
    assert "--policy priority" in error["message"]
    assert "--eviction priority" in error["message"]
    assert api.whole(path, **BODIES[path], priority=0)
