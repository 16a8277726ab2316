"""Numbers out of range, nulls, and what is known but not supported."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from support.asgi import CHAT, COMPLETIONS, HI, Api, ids_of, says
from support.tiny_model import make_tokenizer

from minisgl.core import Limits, SamplingParams
from minisgl.server.schema.chat import ChatRequest
from minisgl.server.schema.completions import CompletionRequest
from minisgl.tokenizer import Tokenizer

BODIES = {CHAT: {"messages": HI}, COMPLETIONS: {"prompt": "Hi"}}
TYPES = {CHAT: ChatRequest, COMPLETIONS: CompletionRequest}


@pytest.fixture(scope="module")
def api() -> Api:
    return Api(says("Hello"))


def params(api: Api, path: str, **body: Any) -> SamplingParams:
    """What the engine was asked for."""
    api.whole(path, **BODIES[path], **body)
    return api.link.requests[-1].sampling_params


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("temperature", ["-1", "2.1", "1e309", "-1e309", "NaN", "Infinity", '"hot"', "true", "[1]", "1" * 400]),
        ("top_p", ["-0.1", "1.1", '"1"']),
        ("min_p", ["2", "-0.1"]),
        ("top_k", ["-2", "1.5", '"5"', "5.0", "true", "1e3", "1" + "0" * 30]),
        ("seed", ["9223372036854775808", "-9223372036854775809", "1.5", '"1"', "true"]),
        ("n", ["0", "-1", "129", "1000000000", "true", "1.0"]),
        ("max_tokens", ["-1", "1.5", "1099511627776", "true"]),
        ("min_tokens", ["-1", "1.5"]),
        (
            "logit_bias",
            ['{"999999":1}', '{"abc":1}', '{"1":101}', '{"1":null}', "[]", '{"-1":1}', '{"1' + "0" * 40 + '":1}'],
        ),
        ("logit_bias", ["{" + ",".join(f'"{token_id}":1' for token_id in range(1025)) + "}"]),
        ("stop_token_ids", ["[1000000]", "[-1]", "7", "[1.5]", f"[{'1,' * 1024}1]"]),
        ("presence_penalty", ["2.1", "-2.1"]),
        ("frequency_penalty", ["2.1", "-2.1"]),
        ("repetition_penalty", ["0", "-1"]),
        ("stop", ["1", "[1]", '""', '[""]', "[null]", '["a",["b"]]', '["x"' + ',"x"' * 64 + "]"]),
        ("ignore_eos", ["1", '"yes"']),
        ("stream", ["1", '"true"']),
        ("cache_salt", ['""', "1"]),
        ("priority", ["1", "2147483648", "-2147483649", "1.5", "true"]),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(api: Api, path: str, field: str, values: list[str]) -> None:
    start = msgspec.json.encode(BODIES[path])[:-1]
    for value in values:
        error = api.check_error(400, api.post_raw(path, start + f',"{field}":{value}}}'.encode()))
        if value not in ("NaN", "Infinity"):  # no JSON at all
            assert error["param"].partition("[")[0] == field, value
            assert field in error["message"]


@pytest.mark.parametrize("field", [{"logprobs": 6}, {"logprobs": -1}, {"logprobs": True}, {"best_of": 3}])
def test_completions_have_ranges_of_their_own(api: Api, field: dict[str, Any]) -> None:
    assert api.error(400, COMPLETIONS, prompt="Hi", **field)["param"] == next(iter(field))


@pytest.mark.parametrize(
    "fields",
    [
        {"top_logprobs": 21, "logprobs": True},
        {"top_logprobs": -1, "logprobs": True},
        {"top_logprobs": 2},
        {"top_logprobs": 2, "logprobs": False},
        {"logprobs": 1},
        {"max_completion_tokens": 0},
        {"max_tokens": 0},
    ],
)
def test_chats_have_ranges_of_their_own(api: Api, fields: dict[str, Any]) -> None:
    assert api.error(400, CHAT, messages=HI, **fields)["param"] == next(iter(fields))


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_top_k_of_0_and_minus_1_is_off_and_one_beyond_the_vocabulary_is_taken(api: Api, path: str) -> None:
    for top_k in (0, -1, 1, 300, 301, 2**31):
        assert params(api, path, top_k=top_k).top_k == top_k


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_the_seed_is_any_int64_and_0_is_one(api: Api, path: str) -> None:
    for seed in (0, -1, 2**63 - 1, -(2**63)):
        assert params(api, path, seed=seed).seed == seed
    assert params(api, path, seed=None).seed is None


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_what_is_given_reaches_the_engine(api: Api, path: str) -> None:
    fields = {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 3,
        "min_p": 0.1,
        "seed": 7,
        "presence_penalty": 1.0,
        "frequency_penalty": -1.0,
        "repetition_penalty": 1.1,
        "logit_bias": {"5": 2.0},
        "min_tokens": 1,
        "max_tokens": 4,
        "ignore_eos": True,
        "skip_special_tokens": False,
        "stop_token_ids": [9],
    }
    given = params(api, path, **fields, stop=["zz"])  # which is found on this side
    assert given == SamplingParams(**{**fields, "logit_bias": {5: 2.0}})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "max_tokens"),
    [
        ({"max_completion_tokens": 5}, 5),
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 5, "max_tokens": 9}, 5),
        ({"max_completion_tokens": None, "max_tokens": 9}, 9),
        ({}, 512),
        ({"max_tokens": None}, 512),
    ],
)
def test_a_chat_may_fill_the_context_unless_it_says_otherwise(
    api: Api, fields: dict[str, Any], max_tokens: int
) -> None:
    assert params(api, CHAT, **fields).max_tokens == max_tokens


def test_a_completion_has_16_tokens_unless_it_says_otherwise(api: Api) -> None:
    assert params(api, COMPLETIONS).max_tokens == 16
    assert params(api, COMPLETIONS, max_tokens=None).max_tokens == 16
    assert params(api, COMPLETIONS, max_tokens=30).max_tokens == 30


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_the_temperature_is_1_unless_it_is_given(api: Api, path: str) -> None:
    assert params(api, path).temperature == 1.0
    assert params(api, path, temperature=0).temperature == 0.0


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_null_is_as_good_as_absent_one_by_one_and_all_together(api: Api, path: str) -> None:
    optional = [name for name in TYPES[path].__struct_fields__ if name not in BODIES[path]]
    plain = params(api, path)
    for name in optional:
        assert params(api, path, **{name: None}) == plain, name
    assert params(api, path, **dict.fromkeys(optional)) == plain


def test_null_is_as_good_as_absent_in_messages(api: Api) -> None:
    nulls = dict.fromkeys(["name", "tool_calls", "tool_call_id", "refusal", "reasoning_content"])
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": None}}
    messages = [{**HI[0], **nulls}, {"role": "assistant", **nulls, "content": None, "tool_calls": [call]}]
    assert api.whole(CHAT, messages=messages)["choices"]


@pytest.mark.parametrize(
    "field",
    [
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"tool_choice": "required"},
        {"tool_choice": {"type": "function", "function": {"name": "f"}}},
        {"functions": [{"name": "f"}]},
        {"function_call": {"name": "f"}},
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_schema", "json_schema": {}}},
        {"audio": {"voice": "x"}},
        {"modalities": ["text", "audio"]},
        {"web_search_options": {}},
        {"lora_path": "x"},
        {"guided_json": {}},
        {"structured_outputs": {}},
        {"bad_words": ["x"]},
        {"use_beam_search": True},
        {"include_stop_str_in_output": True},
        {"no_stop_trim": True},
        {"echo": True},
        {"chat_template": "x"},
        {"verbosity": "high"},
    ],
)
def test_what_would_change_the_answer_is_refused_by_name(api: Api, field: dict[str, Any]) -> None:
    error = api.error(400, CHAT, messages=HI, **field)
    assert error["param"].partition(".")[0].partition("[")[0] == next(iter(field))
    assert error["code"] == "unsupported_parameter"


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_what_changes_nothing_is_accepted(api: Api, path: str) -> None:
    fields = {
        "user": {"id": "u"},
        "metadata": {"a": ["b"]},
        "store": True,
        "service_tier": "auto",
        "logit_bias": {},
        "stop": [],
        "tools": [],
        "tool_choice": "none",
        "parallel_tool_calls": True,
        "response_format": {"type": "text"},
        "lora_path": "",
        "priority": 0,
        "best_of": 1,
        "suffix": "",
        "use_beam_search": False,
        "foo": {"bar": [None]},
        "prompt_cache_key": "k",
    }
    assert params(api, path, **fields) == params(api, path, stop=[], logit_bias={})


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("best_of", [2, None])
def test_best_of_as_many_as_n_is_n_alone(api: Api, path: str, best_of: int | None) -> None:
    assert params(api, path, n=2, best_of=best_of, seed=1) == params(api, path, n=2, seed=1)
    assert (
        len(
            api.whole(path, **({"messages": HI} if path == CHAT else {"prompt": "Hi"}), n=2, best_of=best_of)["choices"]
        )
        == 2
    )


def test_best_of_above_n_is_unsupported_and_below_it_is_wrong(api: Api) -> None:
    assert api.error(400, COMPLETIONS, prompt="Hi", n=2, best_of=3)["code"] == "unsupported_parameter"
    assert api.error(400, COMPLETIONS, prompt="Hi", n=2, best_of=1)["message"] == "best_of=1 is less than n=2"


def test_a_suffix_is_refused(api: Api) -> None:
    assert api.error(400, COMPLETIONS, prompt="Hi", suffix="x")["param"] == "suffix"


def test_stream_options_are_only_for_streams(api: Api) -> None:
    assert api.error(400, CHAT, messages=HI, stream_options={"include_usage": True})["param"] == "stream_options"


@pytest.mark.parametrize("content", ["Say hi", [{"type": "text", "text": "Say"}, {"type": "text", "text": " hi"}]])
def test_text_parts_are_the_joined_text(api: Api, content: Any) -> None:
    api.whole(CHAT, messages=[{"role": "user", "content": content}])
    assert api.link.requests[-1].input_ids.tolist()[1:-2] == ids_of("user: Say hi")


ARGUMENTS = ['{"a": 1, "b": ["ü"]}', {"a": 1, "b": ["ü"]}, "", None, "{broken", "[1]", "[" * 10_000]
CALLING_TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}: {{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.type }} {{ c.function.name }} {{ c.function.arguments | tojson }}"
    "{% if c.function.arguments is mapping %}{% for k, v in c.function.arguments.items() %}<{{ k }}>{{ v }}"
    "{% endfor %}{% endif %}{% endfor %}]{% endfor %}"
)


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=lambda arguments: repr(arguments)[:20])
def test_calls_and_refusals_make_the_same_tokens_in_process_and_over_http(arguments: Any) -> None:
    """OpenAI's form has arguments as a JSON text, of which templates want the object."""
    source = make_tokenizer()
    source.chat_template = CALLING_TEMPLATE
    tokenizer = Tokenizer(source)
    api = Api(says("Hello"), tokenizer=tokenizer, limits=Limits(300, 20_000, 20_000))
    function = {"name": "f", "arguments": arguments}
    texts = set()
    for message in (
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": function}]},
        {"role": "assistant", "tool_calls": [{"function": function}]},
        {"role": "assistant", "content": None, "function_call": function},
    ):
        messages = [*HI, message, {"role": "assistant", "content": None, "refusal": "No."}]
        ids = tokenizer.apply_chat_template(messages)
        api.whole(CHAT, messages=messages)
        assert api.link.requests[-1].input_ids.tolist() == ids.tolist()
        texts.add(tokenizer.decode(ids))
    (text,) = texts
    assert text.endswith("[assistant: No.]")
    if arguments in ARGUMENTS[:2]:
        assert 'function f {"a": 1, "b": ["ü"]}<a>1<b>[\'ü\']' in text
