"""Misspelt fields are refused with the name that was meant; what other servers and their clients know is ignored."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from support.asgi import CHAT, COMPLETIONS, GENERATE, HI, Api, says

from minisgl.server.errors import ApiError
from minisgl.server.schema.cache import ProbeRequest, PurgeRequest
from minisgl.server.schema.chat import ChatRequest
from minisgl.server.schema.completions import CompletionRequest
from minisgl.server.schema.control import AbortRequest
from minisgl.server.schema.decoding import Body, decode
from minisgl.server.schema.generate import GenerateRequest
from minisgl.server.schema.spelling import MAX_CHECKED, OF_OTHERS
from minisgl.server.schema.tokens import DetokenizeRequest, TokenizeRequest
from minisgl.utils.spelling import likely

CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
BODIES: dict[type[Body], dict[str, object]] = {
    ChatRequest: {"messages": HI},
    CompletionRequest: {"prompt": "Hi"},
    GenerateRequest: {"text": "Hi"},
    TokenizeRequest: {"prompt": "Hi"},
    DetokenizeRequest: {"tokens": [1]},
    ProbeRequest: {"prompt": "Hi"},
    PurgeRequest: {"prompt": "Hi"},
    AbortRequest: {"rid": "x"},
}
_OF_OTHERS = (Path(__file__).parents[2] / "data/fields_of_others.txt").read_text()
FIELDS_OF_OTHERS = _OF_OTHERS.partition("\nbody\n")[2].partition("\nmessage\n")[0].split()
MESSAGE_FIELDS_OF_OTHERS = _OF_OTHERS.partition("\nmessage\n")[2].split()


@pytest.fixture(scope="module")
def api() -> Api:
    return Api(says("Hello"))


def param_of(body_type: type[Body], body: object) -> str | None:
    """Of the refusal; None if the body is taken."""
    try:
        decode(msgspec.json.encode(body), body_type)
    except ApiError as error:
        return error.param
    return None


@pytest.mark.parametrize(
    ("path", "body", "param", "meant"),
    [
        (CHAT, {"messages": HI, "temprature": 0.2}, "temprature", "temperature"),
        (CHAT, {"messages": HI, "max_token": 5}, "max_token", "max_tokens"),
        (CHAT, {"messages": HI, "maxTokens": 5, "foo": 1}, "maxTokens", "max_tokens"),
        (CHAT, {"messages": HI, "strem": True}, "strem", "stream"),
        (CHAT, {"message": HI}, "message", "messages"),
        (CHAT, {"messages": HI, "tool": []}, "tool", "tools"),
        (CHAT, {"messages": [{"role": "user", "contents": "Hi"}]}, "messages[0].contents", "content"),
        (CHAT, {"messages": [*HI, {**HI[0], "nam": "x", "id": 1}]}, "messages[1].nam", "name"),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": "x", "tex": 1}]}]},
         "messages[0].content[0].tex", "text"),
        (CHAT, {"messages": [*HI, {"role": "assistant", "tool_calls": [{**CALL, "functoin": 1}]}]},
         "messages[1].tool_calls[0].functoin", "function"),
        (CHAT, {"messages": HI, "stream": True, "stream_options": {"include_usages": True}},
         "stream_options.include_usages", "include_usage"),
        (COMPLETIONS, {"prompt": "Hi", "presense_penalty": 1}, "presense_penalty", "presence_penalty"),
        (COMPLETIONS, {"promt": "Hi"}, "promt", "prompt"),
        (GENERATE, {"text": "Hi", "sampling_parms": {}}, "sampling_parms", "sampling_params"),
        (GENERATE, {"text": "Hi", "sampling_params": {"temprature": 1}}, "sampling_params.temprature", "temperature"),
        (GENERATE, {"text": ["a", "b"], "sampling_params": [{}, {"max_new_token": 1}]},
         "sampling_params[1].max_new_token", "max_new_tokens"),
        ("/tokenize", {"promt": "Hi"}, "promt", "prompt"),
        ("/detokenize", {"token": [1]}, "token", "tokens"),
        ("/cache/probe", {"prompt": "Hi", "cache_slat": "x"}, "cache_slat", "cache_salt"),
        ("/cache/purge", {"prompt": "Hi", "cachesalt": "x"}, "cachesalt", "cache_salt"),
        ("/abort_request", {"abort_al": True}, "abort_al", "abort_all"),
    ],
)  # fmt: skip
def test_a_slip_is_refused_with_the_likely_name(
    api: Api, path: str, body: dict[str, object], param: str, meant: str
) -> None:
    error = api.error(400, path, **body)
    assert (error["param"], error["code"], error["type"]) == (param, None, "invalid_request_error")
    assert error["message"] == f"{param}: no such field; did you mean {meant}?"


@pytest.mark.parametrize("body_type", BODIES, ids=lambda body_type: body_type.__name__)
def test_fields_of_other_servers_are_ignored(body_type: type[Body]) -> None:
    known = set(body_type.__struct_encode_fields__)
    for name in FIELDS_OF_OTHERS:
        if name not in known:
            assert param_of(body_type, BODIES[body_type] | {name: {"a": 1}}) is None, name
    for name in OF_OTHERS:  # those that a client may send anywhere
        assert param_of(body_type, BODIES[body_type] | {name: 1}) is None, name


def test_fields_of_other_servers_are_ignored_in_what_a_body_holds() -> None:
    known = {"role", "content", "name", "tool_calls", "tool_call_id", "function_call", "refusal", "reasoning_content"}
    for name in {*MESSAGE_FIELDS_OF_OTHERS} - known:
        assert param_of(ChatRequest, {"messages": [{**HI[0], name: {"a": 1}}]}) is None, name
    for name in ("index", "parsed_arguments", "strict", "custom", "extra_content", "cache_control", "annotations"):
        call = {**CALL, name: 1, "function": {"name": "f", "arguments": "{}", name: 1}}
        assert param_of(ChatRequest, {"messages": [*HI, {"role": "assistant", "tool_calls": [call]}]}) is None, name
        part = {"type": "text", "text": "x", name: 1}
        assert param_of(ChatRequest, {"messages": [{"role": "user", "content": [part]}]}) is None, name
    for name in ("include_obfuscation", "foo"):
        assert param_of(ChatRequest, {"messages": HI, "stream": True, "stream_options": {name: True}}) is None
    for name in {*FIELDS_OF_OTHERS} - {*known_sampling()}:
        assert param_of(GenerateRequest, {"text": "Hi", "sampling_params": {name: 1}}) is None, name


def known_sampling() -> tuple[str, ...]:
    from minisgl.server.schema.generate import GenerateSampling

    return GenerateSampling.__struct_encode_fields__


def test_no_known_field_is_a_slip_for_another_that_its_neighbours_know() -> None:
    """What one endpoint knows is sent to others too."""
    everywhere = {name for body_type in BODIES for name in body_type.__struct_encode_fields__}
    for body_type in BODIES:
        fields = body_type.__struct_encode_fields__
        assert [name for name in everywhere - {*fields} if likely(name, fields)] == []


def test_every_exception_is_one() -> None:
    """A name that is no slip for anything needs none."""
    known = {name for body_type in BODIES for name in body_type.__struct_encode_fields__}
    known |= {"role", "content", "name"}
    assert [name for name in OF_OTHERS if not likely(name, known)] == []


@pytest.mark.parametrize(
    "more",
    [
        {"temprature": None},
        {"foo": {"temprature": 1}, "metadata": {"max_token": "5"}, "user": {"nam": 1}},
        {"chat_template_kwargs": {"mesages": 1}, "logit_bias": {"1": 1}},
        {"x" * 100_000: 1, "temprature" * 20: 1, "": 1, "é": 1, "🦀": 1},
        {f"f{i}": i for i in range(1000)},
    ],
    ids=lambda more: str(more)[:30],
)
def test_what_is_no_field_of_ours_is_ignored(api: Api, more: dict[str, object]) -> None:
    assert api.whole(CHAT, messages=HI, **more)["choices"]


def test_an_unknown_field_changes_nothing_else_of_a_body() -> None:
    messages = [*HI, {"role": "assistant", "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "1", "content": "x"}]
    body = {"messages": messages, "stop": ["a"], "logit_bias": {"1": 2}, "stream": True, "stream_options": {}}
    plain = msgspec.to_builtins(decode(msgspec.json.encode(body), ChatRequest))
    for more in ({"foo": 1}, {"messages": [*messages[:2], {**messages[2], "foo": 1}]}):
        other = decode(msgspec.json.encode(body | more), ChatRequest)
        assert isinstance(other, ChatRequest)
        assert repr(msgspec.to_builtins(other)) == repr(plain)  # the order of the fields too
    assert param_of(ChatRequest, body | {"foo": 1, "temperature": 9}) == "temperature"
    assert param_of(ChatRequest, {"foo": 1}) == "messages"


@pytest.mark.parametrize(
    ("body", "num_looks"),
    [
        ({"messages": HI}, 0),
        ({"messages": HI, "temperature": 1, "user": "x", "stream_options": None}, 0),
        ({"messages": HI, "foo": 1}, 1),
        ({"messages": HI * 50, "foo": 1, "bar": 2}, 1),
        ({"messages": [{**HI[0], "foo": 1}] * 50}, 52),
    ],
)
def test_a_body_is_looked_through_only_where_it_has_unknown_fields(
    body: object, num_looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from minisgl.server.schema import spelling

    looks: list[str] = []
    look = spelling._slips_here
    monkeypatch.setattr(spelling, "_slips_here", lambda values, *more: looks.append("") or look(values, *more))
    decode(msgspec.json.encode(body), ChatRequest)
    assert len(looks) == num_looks


@pytest.mark.parametrize("in_each", [1, 4, 200])
def test_only_so_many_different_unknown_names_of_a_body_are_compared(
    in_each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body of 64 KiB, decoded on the event loop, could else hold it for a third of a second."""
    from minisgl.server.schema import spelling

    compared: list[str] = []
    spelling._meant.cache_clear()
    monkeypatch.setattr(spelling, "likely", lambda name, known: compared.append(name))
    messages = [{**HI[0], **{f"unknown_{i}_{j}": 1 for j in range(in_each)}} for i in range(400 // in_each)]
    decode(msgspec.json.encode({"messages": [*messages, *messages]}), ChatRequest)
    unknown = [name for message in messages for name in message if name not in HI[0]]
    assert compared == unknown[:MAX_CHECKED]


def test_a_slip_is_found_in_the_last_of_many_messages_with_the_same_unknown_fields() -> None:
    messages = [{**HI[0], "timestamp": i, "author": "x"} for i in range(1000)]
    assert param_of(ChatRequest, {"messages": messages}) is None
    assert param_of(ChatRequest, {"messages": [*messages, {**HI[0], "contnt": "x"}]}) == "messages[1000].contnt"


def test_only_so_many_variables_of_a_template_are_compared(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    from minisgl.server.schema import template

    compared: list[str] = []
    monkeypatch.setattr(template, "misspelt_variable", lambda read, name: compared.append(name))
    assert api.whole(CHAT, messages=HI, chat_template_kwargs={f"x{i}": i for i in range(1000)})["choices"]
    assert len(compared) == MAX_CHECKED
