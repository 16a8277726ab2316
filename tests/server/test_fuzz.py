"""Bodies that no honest client sends: nothing above 4xx, and the next request is answered as if nothing had been."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.scripted_link import ScriptedLink, make_engine_client
from support.server_app import make_app, make_state

TEXT = "héllo 世界"
ORDINARY: dict[str, dict[str, Any]] = {
    "/v1/completions": {
        "model": "a-model",
        "prompt": TEXT,
        "max_tokens": 5,
        "temperature": 0.5,
        "stop": ["zz"],
        "logprobs": 2,
        "stream_options": None,
    },
    "/v1/chat/completions": {
        "model": "a-model",
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": TEXT}]}],
        "max_completion_tokens": 5,
        "stream": True,
        "stream_options": {"include_usage": True},
        "logit_bias": {"65": -1},
    },
    "/generate": {"text": TEXT, "sampling_params": {"max_new_tokens": 5, "temperature": 0.5}, "stream": False},
    "/tokenize": {"model": "a-model", "prompt": TEXT, "add_special_tokens": True},
    "/detokenize": {"model": "a-model", "tokens": [65, 66]},
    "/cache/probe": {"model": "a-model", "prompt": TEXT, "cache_salt": "s"},
    "/cache/explain": {"model": "a-model", "prompt": TEXT, "cache_salt": "s"},
    "/inspect/path": {"model": "a-model", "prompt": TEXT, "cache_salt": "s"},
    "/cache/purge": {"model": "a-model", "prompt": TEXT, "cache_salt": "s"},
    "/abort_request": {"rid": "nobody"},
}
CACHE = ["model", "prompt", "input_ids", "messages", "cache_salt", "add_generation_prompt", "chat_template_kwargs"]
SAMPLING = [
    *("temperature", "top_p", "top_k", "min_p", "seed", "stop", "min_tokens", "ignore_eos", "stop_token_ids", "n"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "skip_special_tokens"),
]
OPENAI = [
    *(*SAMPLING, "model", "stream", "stream_options", "max_tokens", "logprobs", "cache_salt", "priority", "user"),
    *("explain", "return_token_ids"),
    *("metadata", "store", "service_tier", "response_format", "an-unknown-field"),
]
# Every field that the endpoint reads, or knows and refuses.
FIELDS = {
    "/v1/completions": [*OPENAI, "prompt", "echo", "suffix", "best_of", "prompt_logprobs"],
    "/v1/chat/completions": [
        *(*OPENAI, "messages", "max_completion_tokens", "top_logprobs", "tools", "tool_choice", "functions", "audio"),
        *("chat_template_kwargs", "add_generation_prompt", "continue_final_message", "parallel_tool_calls"),
    ],
    "/generate": [
        *("text", "input_ids", "sampling_params", "stream", "rid", "return_logprob", "logprob_start_len"),
        *("top_logprobs_num", "cache_salt", "priority", "explain", "lora_path"),
    ],
    "/tokenize": ["model", "prompt", "messages", "add_special_tokens", "add_generation_prompt"],
    "/detokenize": ["model", "tokens"],
    "/cache/probe": CACHE,
    "/cache/explain": CACHE,
    "/inspect/path": CACHE,
    "/cache/purge": [*CACHE, "all_salts"],
    "/abort_request": ["rid", "abort_all"],
}
ALL_FIELDS = sorted({field for fields in FIELDS.values() for field in fields})
ENDPOINTS = sorted(ORDINARY)
DEEP = 100_000

RAW = {
    "nothing": b"",
    "a blank": b" ",
    "null": b"null",
    "a list": b"[]",
    "a number": b"1",
    "a string": b'"prompt"',
    "no UTF-8": b'{"prompt": "\xff\xfe"}',
    "an overlong NUL": b'{"prompt": "\xc0\x80"}',
    "UTF-16": json.dumps({"prompt": "x"}).encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf" + json.dumps({"prompt": "x"}).encode(),
    "a surrogate in UTF-8": b'{"prompt": "\xed\xa0\x80"}',
    "two values": b'{"prompt": "x"} {"prompt": "y"}',
    "no JSON": b"prompt=x&max_tokens=5",
    "the same key twice": b'{"prompt": "x", "prompt": 5, "text": "x", "text": 5, "messages": [], "messages": 5}',
    "deep lists": b"[" * DEEP + b"]" * DEEP,
    "open lists": b"[" * DEEP,
    "deep objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "a long key": b'{"' + b"k" * 1_000_000 + b'": 1}',
}
VALUES = {
    "a lone surrogate": b'"\\ud800"',
    "surrogates the wrong way round": b'"\\udc00\\ud800"',
    "a NUL": b'"a\\u0000b"',
    "NaN": b"NaN",
    "Infinity": b"-Infinity",
    "1e999": b"1e999",
    "-1e-999": b"-1e-999",
    "10 ** 400": b"1" + b"0" * 400,
    "10 ** 5000": b"1" + b"0" * 5000,
    "2 ** 63": b"9223372036854775808",
    "-2 ** 63 - 1": b"-9223372036854775809",
    "2 ** 31": b"2147483648",
    "1.0": b"1.0",
    "-0.0": b"-0.0",
    "true": b"true",
    "null": b"null",
    "an empty text": b'""',
    "an empty list": b"[]",
    "an empty object": b"{}",
    "a list of null": b"[null]",
    "lists in a list": b"[[1], [-1], [], [1.5]]",
    "a list of lists of texts": b'[["a"]]',
    "texts and numbers": b'["a", 1]',
    "a surrogate as a key": b'{"\\ud800": 1}',
    "strange messages": b'[{"role": "banana"}, 5, {"content": {"type": "text"}}, {"role": null, "content": [[]]}]',
    "deep lists": b"[" * DEEP + b"]" * DEEP,
    "a deep object": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
}
QUERIES = [
    *(
        "",
        "-1",
        "+1",
        "1.0",
        "1e3",
        "0x10",
        "1_000",
        "%201",
        "1%00",
        "NaN",
        "null",
        "[]",
        "%FF",
        "%ED%A0%80",
        "\u0663",
        "\u00b2",
    ),
    *("1&{name}=2", "1%262", "10000000000000000000000000000000000000000"),
]


class Server:
    """The whole application on a scripted engine, and a client for raw bodies, in one event loop."""

    def __init__(self) -> None:
        self.link = ScriptedLink()
        self._runner = asyncio.Runner()
        app = make_app(make_state(engine=make_engine_client(link=self.link)))
        self._client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")

    def close(self) -> None:
        self._runner.run(self._client.aclose())
        self._runner.close()

    def get(self, path: str) -> httpx.Response:
        return self._runner.run(self._client.get(path))

    def post(self, path: str, body: bytes) -> httpx.Response:
        return self._runner.run(self._client.post(path, content=body, headers={"Content-Type": "application/json"}))

    def check(self, path: str, body: bytes) -> int:
        """The status, after everything that must hold for any body was checked."""
        response = self.post(path, body)
        assert response.status_code in (200, 400, 404, 413), response.text[:500]
        assert response.content.decode("utf-8")
        if response.status_code != 200:
            check_error(response)
        self.check_alive()
        return response.status_code

    def check_alive(self) -> None:
        answer = self.post(
            "/v1/completions", json.dumps({"model": "a-model", "prompt": "abc", "max_tokens": 4}).encode()
        )
        assert answer.status_code == 200, answer.text
        assert answer.json()["choices"][0]["text"] == "abca"
        assert self.link.num_open == 0


def check_error(response: httpx.Response) -> None:
    """OpenAI's form, in valid UTF-8."""
    assert response.headers["content-type"].startswith("application/json")
    error = json.loads(response.content.decode("utf-8"))["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert error["message"]
    assert len(error["message"]) < 2000
    for key in ("param", "code"):
        assert error[key] is None or isinstance(error[key], str)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.mark.parametrize("path", ENDPOINTS)
def test_an_ordinary_body_is_answered(server, path):
    assert server.check(path, json.dumps(ORDINARY[path]).encode()) == 200


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("name", RAW)
def test_a_body_that_is_no_request_is_refused(server, name, path):
    assert server.check(path, RAW[name]) == 400


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize("name", VALUES)
def test_any_field_may_hold_anything(server, name, path):
    for field in FIELDS[path]:
        server.check(path, body_with(ORDINARY[path], field, VALUES[name]))


@pytest.mark.parametrize("name", VALUES)
def test_any_sampling_parameter_may_hold_anything(server, name):
    for field in [*SAMPLING, "max_new_tokens", "regex"]:
        params = body_with({"max_new_tokens": 3}, field, VALUES[name])
        server.check("/generate", body_with({"text": "x"}, "sampling_params", params))


@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_body_that_breaks_off_is_refused_wherever_it_does(server, path):
    body = json.dumps(ORDINARY[path], ensure_ascii=False).encode()
    for length in range(len(body)):
        assert server.check(path, body[:length]) == 400


@pytest.mark.parametrize("query", [*QUERIES, "x" * 60_000])
def test_an_address_may_say_anything_of_a_number(server, query):
    for path, name in (("activity", "since"), ("tree", "node"), ("tree", "max_nodes"), ("requests", "limit")):
        response = server.get(f"/inspect/{path}?{name}={query.format(name=name)}")
        assert response.status_code == 400, (path, name, query)
        assert response.json()["error"]["param"] == name
        check_error(response)


@pytest.mark.parametrize("name", ["a lone surrogate", "10 ** 400", "deep lists"])
def test_anything_may_stand_inside_a_message(server, name):
    for shape in (b'{"role": %s, "content": "x"}', b'{"role": "user", "content": %s}', b'{"role": "user", "name": %s}'):
        body = b'{"model": "a-model", "messages": [' + shape.replace(b"%s", VALUES[name]) + b"]}"
        assert server.check("/v1/chat/completions", body) == 400


def body_with(body: dict[str, Any], field: str, value: bytes) -> bytes:
    """`body` as JSON, with raw JSON as the value of one field."""
    rest = json.dumps({name: held for name, held in body.items() if name != field}).encode()
    return b'{"' + field.encode() + b'": ' + value + (b", " + rest[1:] if len(rest) > 2 else b"}")


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=True)
    | st.text(st.characters(), max_size=12)
    | st.sampled_from(["a-model", "user", "text", "\ud800", "65"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(ALL_FIELDS) | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)
FUZZ = settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@FUZZ
@given(
    path=st.sampled_from(ENDPOINTS),
    changes=st.dictionaries(st.sampled_from(ALL_FIELDS), JSON_VALUES, min_size=1, max_size=3),
)
def test_wrong_types_anywhere_are_refused_or_harmless(server, path, changes):
    server.check(path, json.dumps({**ORDINARY[path], **changes}).encode())


@FUZZ
@given(path=st.sampled_from(ENDPOINTS), data=st.data())
def test_a_body_with_some_bytes_changed_is_refused_or_harmless(server, path, data):
    body = bytearray(json.dumps(ORDINARY[path], ensure_ascii=False).encode())
    places = data.draw(st.lists(st.integers(0, len(body) - 1), min_size=1, max_size=4))
    for place in places:
        body[place] = data.draw(st.integers(0, 255))
    server.check(path, bytes(body))
