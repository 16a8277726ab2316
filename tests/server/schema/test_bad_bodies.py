"""What is no proper request is a 400 in OpenAI's form, at every endpoint, and the next request is served."""

from __future__ import annotations

from typing import Any

import pytest
from support.asgi import CHAT, COMPLETIONS, GENERATE, HI, Api, says

POSTS = [CHAT, COMPLETIONS, GENERATE, "/tokenize", "/detokenize", "/abort_request"]
REFUSAL = {"type": "refusal", "refusal": "No."}
GOOD = {
    CHAT: b'{"messages":[{"role":"user","content":"Hi"}]%s}',
    COMPLETIONS: b'{"prompt":"Hi"%s}',
    GENERATE: b'{"text":"Hi"%s}',
    "/tokenize": b'{"prompt":"Hi"%s}',
    "/detokenize": b'{"tokens":[1]%s}',
    "/abort_request": b'{"rid":"x"%s}',
}


@pytest.fixture(scope="module")
def api() -> Api:
    return Api(says("Hello"))


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"{}",
        b"1",
        b"{",
        b"\xff\xfe",
        b"\xef\xbb\xbf{}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"messages":[{"role":"user","content":"\\ud800"}],"prompt":"\\ud800","text":"\\ud800","tokens":"\\ud800"}',
    ],
)
def test_a_body_that_is_no_request_is_refused(api: Api, path: str, body: bytes) -> None:
    assert api.check_error(400, api.post_raw(path, body))["message"]


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize(
    "field",
    [
        b'"x":"\xff"',
        b'"x":"\\ud800"',
        b'"\\udc00":1',
        b'"x":NaN',
        b'"x":[Infinity]',
        b'"x":' + b"[" * 100_000 + b"]" * 100_000,
    ],
)
def test_fields_that_are_ignored_must_still_be_json(api: Api, path: str, field: bytes) -> None:
    api.check_error(400, api.post_raw(path, GOOD[path] % (b"," + field)))


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("field", [b'"foo":{"a":[1,null]}', b'"\\u0000":1e999', b'"model":null', b'"model":""'])
def test_unknown_fields_and_nulls_are_as_good_as_absent(api: Api, path: str, field: bytes) -> None:
    assert api.post_raw(path, GOOD[path] % (b"," + field)).status_code == 200


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "", None])
def test_a_body_must_say_that_it_is_json(api: Api, path: str, content_type: str | None) -> None:
    error = api.check_error(400, api.post_raw(path, GOOD[path] % b"", content_type))
    assert "application/json" in error["message"]


def test_a_content_type_may_have_parameters(api: Api) -> None:
    assert api.post_raw(CHAT, GOOD[CHAT] % b"", "application/json; charset=utf-8").status_code == 200


def test_the_character_nul_is_legal(api: Api) -> None:
    assert api.post(COMPLETIONS, prompt="a\u0000b").status_code == 200


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, {}, "messages"),
        (CHAT, {"messages": None}, "messages"),
        (CHAT, {"messages": "Hi"}, "messages"),
        (CHAT, {"messages": []}, "messages"),
        (CHAT, {"messages": [{"content": "Hi"}]}, "messages[0].role"),
        (CHAT, {"messages": [*HI, {"role": "banana", "content": "Hi"}]}, "messages[1].role"),
        (CHAT, {"messages": [{"role": "user"}]}, "messages[0].content"),
        (CHAT, {"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        (CHAT, {"messages": [{"role": "user", "content": [{"text": "Hi"}]}]}, "messages[0].content[0].type"),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0].type"),
        (CHAT, {"messages": [{"role": "user", "function_call": {"name": "f"}}]}, "messages[0].content"),
        (CHAT, {"messages": [{"role": "user", "content": [REFUSAL]}]}, "messages[0].content[0].type"),
        (CHAT, {"messages": HI, "top_logprobs": 1}, "top_logprobs"),
        (COMPLETIONS, {}, "prompt"),
        (COMPLETIONS, {"prompt": None}, "prompt"),
        (COMPLETIONS, {"prompt": []}, "prompt"),
        (COMPLETIONS, {"prompt": ""}, "prompt"),
        (COMPLETIONS, {"prompt": [""]}, "prompt"),
        (COMPLETIONS, {"prompt": [[]]}, "prompt[0]"),
        (COMPLETIONS, {"prompt": [1, "a"]}, "prompt"),
        (COMPLETIONS, {"prompt": [1.5]}, "prompt[0]"),
        (COMPLETIONS, {"prompt": [-1]}, "prompt[0]"),
        (COMPLETIONS, {"prompt": [999]}, "prompt"),
        (COMPLETIONS, {"prompt": ["a"] * 2049}, "prompt"),
        (GENERATE, {}, "text"),
        (GENERATE, {"text": "Hi", "input_ids": [1]}, "text"),
        (GENERATE, {"text": ["a", "b"], "sampling_params": [{}]}, "sampling_params"),
        (GENERATE, {"text": "Hi", "sampling_params": {"temperature": 9}}, "sampling_params.temperature"),
        (GENERATE, {"text": "Hi", "sampling_params": {"no_stop_trim": True}}, "sampling_params.no_stop_trim"),
        (GENERATE, {"text": "Hi", "sampling_params": [{"regex": "x"}]}, "sampling_params[0].regex"),
        (GENERATE, {"text": "Hi", "sampling_params": {"priority": 3}}, "sampling_params.priority"),
        (GENERATE, {"text": "Hi", "image_data": ["x"]}, "image_data"),
        (COMPLETIONS, {"prompt": "Hi", "max_tokens": -1}, "max_tokens"),
        (GENERATE, {"text": "Hi", "sampling_params": {"max_new_tokens": -1}}, "sampling_params.max_new_tokens"),
        (CHAT, {"messages": HI, "tool_choice": "required"}, "tool_choice"),
        (CHAT, {"messages": HI, "tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        (CHAT, {"messages": HI, "tool_choice": {}}, "tool_choice"),
        (COMPLETIONS, {"prompt": "Hi", "n": 2, "best_of": 1}, "best_of"),
        (COMPLETIONS, {"prompt": "Hi", "n": 2, "best_of": 3}, "best_of"),
        (COMPLETIONS, {"prompt": "Hi", "n": None, "best_of": 2}, "best_of"),
        (COMPLETIONS, {"prompt": "Hi", "best_of": 0}, "best_of"),
        (CHAT, {"messages": HI, "best_of": 2}, "best_of"),
        (COMPLETIONS, {"prompt": "Hi", "logit_bias": {"9999": 1}}, "logit_bias"),
        (CHAT, {"messages": HI, "stop_token_ids": [9999]}, "stop_token_ids"),
        (
            GENERATE,
            {"text": "Hi", "sampling_params": {"min_new_tokens": 9, "max_new_tokens": 8}},
            "sampling_params.min_new_tokens",
        ),
        (
            GENERATE,
            {"text": ["a", "b"], "sampling_params": [{}, {"stop_token_ids": [9999]}]},
            "sampling_params[1].stop_token_ids",
        ),
    ],
)
def test_the_error_names_the_field(api: Api, path: str, body: dict[str, Any], param: str, stream: bool) -> None:
    error = api.error(400, path, **body, stream=stream)
    assert error["param"] == param
    assert param.partition("[")[0] in error["message"]


def test_an_error_about_two_fields_calls_both_by_the_names_that_were_sent(api: Api) -> None:
    sampling = {"min_new_tokens": 9, "max_new_tokens": 8}
    message = api.error(400, GENERATE, text="Hi", sampling_params=sampling)["message"]
    assert message == "sampling_params.min_new_tokens=9 is more than sampling_params.max_new_tokens=8"
    message = api.error(400, CHAT, messages=HI, max_completion_tokens=8, min_tokens=9)["message"]
    assert message == "min_tokens=9 is more than max_completion_tokens=8"


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_another_model_is_not_found(api: Api, path: str) -> None:
    error = api.error(404, path, messages=HI, prompt="Hi", model="nope")
    assert (error["param"], error["code"]) == ("model", "model_not_found")


def test_ignored_fields_are_named_in_the_log_for_debugging(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG", logger="minisgl.server.schema"):
        api.whole(COMPLETIONS, prompt="Hi", foo=1, **{"a\nb": 2}, user="u")
    assert [record.getMessage() for record in caplog.records] == ["ignored fields: ['a\\nb', 'foo']"]


def test_a_very_long_name_is_not_sent_back(api: Api) -> None:
    for field in ("model", "tool_choice"):
        assert len(api.post(CHAT, messages=HI, **{field: "x" * 100_000}).content) < 2000


@pytest.mark.parametrize("field", ["cache_salt", "priority"])
@pytest.mark.parametrize("is_list", [False, True])
def test_what_belongs_beside_the_sampling_params_is_refused_inside_them(api: Api, field: str, is_list: bool) -> None:
    sampling: dict[str, Any] = {field: "x" if field == "cache_salt" else 3}
    error = api.error(400, GENERATE, text="Hi", sampling_params=[sampling] if is_list else sampling)
    assert error["param"] == f"sampling_params{'[0]' * is_list}.{field}"
    assert error["message"].endswith("it belongs in the body, beside sampling_params")
