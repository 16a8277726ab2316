"""Everything that does not generate for a client: models, tokens, information, control, pages."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

import pytest
from support.asgi import CHAT, COMPLETIONS, GENERATE, HI, Api, Exchange, ids_of, says
from support.scripted_link import Item
from support.server_app import ask
from support.tiny_model import BOS, TEMPLATE, make_tokenizer

import minisgl
from minisgl.core import Limits
from minisgl.message import EngineInfo, UserMsg
from minisgl.server.config import ServerConfig
from minisgl.server.endpoints import cache, common, info, tokens
from minisgl.server.schema import tokens as schema_tokens
from minisgl.tokenizer import Tokenizer


@pytest.fixture
def api() -> Api:
    return Api(says("Hello"))


def slowly(request: UserMsg) -> Iterable[Item]:
    return itertools.chain.from_iterable(itertools.repeat((ids_of("x")[0], 0.05)))


def test_the_one_model_is_listed_and_shown(api: Api) -> None:
    listed = api.get("/v1/models").json()
    assert (listed["object"], [model["id"] for model in listed["data"]]) == ("list", ["a-model"])
    shown = api.get("/v1/models/a-model").json()
    assert shown == listed["data"][0]
    assert (shown["object"], shown["max_model_len"]) == ("model", 512)


def test_a_pool_smaller_than_the_context_is_the_length_that_is_shown() -> None:
    api = Api(limits=Limits(300, max_seq_len=512, pool_len=64))
    assert api.get("/v1/models").json()["data"][0]["max_model_len"] == 64
    assert api.get("/get_model_info").json()["max_model_len"] == 64
    assert api.whole("/tokenize", prompt="Hi")["max_model_len"] == 64


def test_a_model_s_name_may_have_slashes() -> None:
    api = Api(model_name="some/model")
    assert api.get("/v1/models/some/model").json()["id"] == "some/model"
    assert api.check_error(404, api.get("/v1/models/model"))["code"] == "model_not_found"


def test_a_text_becomes_tokens_and_tokens_a_text(api: Api) -> None:
    made = api.whole("/tokenize", prompt="é</s>", return_token_strs=True)
    assert (made["count"], made["max_model_len"]) == (3, 512)
    assert made["token_strs"] == ["bytes:\\xc3", "bytes:\\xa9", "</s>"]
    assert api.whole("/detokenize", tokens=made["tokens"])["prompt"] == "é</s>"
    assert api.whole("/detokenize", tokens=made["tokens"], skip_special_tokens=True)["text"] == "é"


def test_nothing_and_very_much_are_tokenized_too(api: Api) -> None:
    assert api.whole("/tokenize", prompt="")["tokens"] == []
    assert api.whole("/tokenize", prompt="x" * 10_000)["count"] == 10_000
    assert api.whole("/detokenize", tokens=[])["prompt"] == ""
    assert api.whole("/detokenize", tokens=[299])["prompt"] == ""  # of the model's vocabulary, beyond the tokenizer's


def test_a_text_beyond_all_measure_is_not_tokenized(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MAX_BYTES", 10)
    for prompt in ("x" * (512 * 8 + 1), "é" * (512 * 4) + "x"):
        error = api.error(400, "/tokenize", prompt=prompt)
        assert error["param"] == "prompt"
        assert "4097 bytes" in error["message"]
        assert "4096" in error["message"]
    assert api.whole("/tokenize", prompt="x" * 512 * 8)["count"] == 512 * 8


def test_a_chat_is_tokenized_as_its_template_writes_it(api: Api) -> None:
    tokens = api.whole("/tokenize", messages=HI)["tokens"]
    api.whole(CHAT, messages=HI)
    assert tokens == api.link.requests[-1].input_ids.tolist()
    assert tokens[-1] == BOS
    assert api.whole("/tokenize", messages=HI, add_generation_prompt=False)["tokens"] == tokens[:-1]


@pytest.mark.parametrize("body", [{}, {"prompt": "x", "messages": HI}])
def test_tokenize_takes_either_a_prompt_or_messages(api: Api, body: dict[str, Any]) -> None:
    assert api.error(400, "/tokenize", **body)["param"] == "prompt"


def test_detokenize_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever comes first: the number of ids, or the length of their text."""
    api = Api(limits=Limits(300, max_seq_len=10, pool_len=64))
    monkeypatch.setattr(tokens, "MAX_BYTES", 50)
    allowed = 80
    assert len(api.whole("/detokenize", tokens=ids_of("x") * allowed)["text"]) == allowed
    monkeypatch.setattr(tokens, "Text", None)  # no text is made
    error = api.error(400, "/detokenize", tokens=ids_of("x") * (allowed + 1))
    assert (error["param"], error["message"]) == (
        "tokens",
        "tokens: a text of 81 bytes; at most 80 are written at a time",
    )
    monkeypatch.setattr(schema_tokens, "MAX_IDS", 20)
    error = api.error(400, "/detokenize", tokens=[1] * 21)
    assert (error["param"], error["message"]) == (
        "tokens",
        "tokens: 21 token ids; at most 20 are detokenized at a time",
    )


def test_detokenize_refuses_too_many_ids_before_they_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "decode", None)
    error = Api().error(400, "/detokenize", tokens=[1] * (2**17 + 1))
    assert error["message"] == "tokens: 131073 token ids; at most 131072 are detokenized at a time"


@pytest.mark.parametrize("tokens", [[-1], [2**31], [1.5], ["a"], "a", None])
def test_detokenize_takes_only_token_ids(api: Api, tokens: Any) -> None:
    assert api.error(400, "/detokenize", tokens=tokens)["param"].startswith("tokens")


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/detokenize", {"tokens": [1, 300, 2]}, "tokens[1]"),
        ("/detokenize", {"tokens": [2**31 - 1]}, "tokens[0]"),
        (COMPLETIONS, {"prompt": [1, 300, 2]}, "prompt"),
        (COMPLETIONS, {"prompt": [[1], [300]]}, "prompt[1]"),
        (COMPLETIONS, {"prompt": "Hi", "logit_bias": {"300": 1}}, "logit_bias"),
        (CHAT, {"messages": HI, "stop_token_ids": [1, 300]}, "stop_token_ids"),
        (GENERATE, {"input_ids": [1, 300]}, "input_ids"),
        ("/cache/probe", {"input_ids": [1, 300]}, "input_ids"),
        ("/cache/explain", {"input_ids": [1, 300]}, "input_ids"),
        ("/cache/purge", {"input_ids": [1, 300]}, "input_ids"),
        ("/inspect/path", {"input_ids": [1, 300]}, "input_ids"),
    ],
)
def test_an_id_outside_the_vocabulary_is_named(api: Api, path: str, body: dict[str, Any], param: str) -> None:
    error = api.error(400, path, **body)
    assert error["param"] == param
    assert "300" in error["message"].replace(str(2**31 - 1), "300")


def test_information_has_what_tools_look_for(api: Api) -> None:
    assert api.get("/version").json() == {"version": minisgl.__version__}
    assert api.get("/get_server_info").json()["internal_states"][0]["num_running"] == 0
    model = api.get("/get_model_info").json()
    assert (model["model_path"], model["is_generation"], model["max_model_len"]) == ("a-model", True, 512)


def test_flush_cache_reaches_the_engine(api: Api) -> None:
    assert api.post("/flush_cache").json() == {"success": True}
    assert [(len(purge.prefix), purge.cache_salt) for purge in api.link.purges] == [(0, None)]


@pytest.mark.parametrize("path", ["/get_server_info", "/flush_cache", "/cache/probe", "/cache/purge"])
def test_a_question_is_not_kept_waiting_by_an_engine_that_does_not_answer(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = Api()
    monkeypatch.setattr(api.link, "ask", lambda question: Future())
    monkeypatch.setattr(cache, "ANSWER_TIMEOUT_S", 0.01)
    monkeypatch.setattr(info, "ANSWER_TIMEOUT_S", 0.01)
    response = api.get(path) if path == "/get_server_info" else api.post(path, input_ids=[1])
    assert api.check_error(503, response)["code"] == "engine_slow"


@pytest.mark.parametrize(
    ("path", "body"),
    [("/flush_cache", b""), ("/cache/purge", b'{"all_salts":true}'), ("/abort_request", b'{"abort_all":true}')],
)
def test_pages_of_other_origins_control_nothing(path: str, body: bytes) -> None:
    """A browser sends a POST without a body for any page, and its answer is of no account."""
    api = Api(config=ServerConfig(cors_origins=["https://ours"]))
    kind = {"content-type": "application/json"} if body else {}
    for origin in ("http://evil", "null", "", "http://server"):
        response = ask(api.app, "POST", path, content=body, headers=kind | {"origin": origin})
        assert api.check_error(403, response)["code"] == "foreign_origin"
    assert api.link.purges == []
    for fine in (kind, kind | {"origin": "https://ours"}):
        assert ask(api.app, "POST", path, content=body, headers=fine).status_code == 200


def test_server_info_says_nothing_of_the_machine() -> None:
    fields = {field.name: field.name for field in dataclasses.fields(EngineInfo)}
    info = EngineInfo(**{**fields, "path": "/home/somebody/model", "model": "/home/somebody/model", "pid": 424242})  # type: ignore[arg-type]
    response = Api(info=info, model_name="a-model").get("/get_server_info")
    assert response.json()["engine"]["model"] == "a-model"
    assert response.json()["engine"]["page_size"] == "page_size"
    assert "somebody" not in response.text
    assert "424242" not in response.text


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("path", ["/v1/responses", "/v1/responses/resp_1/cancel", "/v1/embeddings", "/v1/audio/speech"])
def test_what_is_not_served_of_openai_s_api_is_refused_by_name(api: Api, method: str, path: str) -> None:
    error = api.check_error(400, ask(api.app, method, path))
    assert error["code"] == "unsupported_endpoint"
    assert path.split("/")[2] in error["message"]


def test_health_generate_asks_for_one_token_past_the_gate() -> None:
    api = Api(says("Hello"))
    with api.state.gate.enter(api.state.gate.capacity):
        assert api.get("/health_generate").status_code == 200
    assert api.link.requests[-1].sampling_params.max_tokens == 1


def test_health_generate_is_503_when_the_engine_generates_nothing() -> None:
    api = Api(lambda request: [ValueError("broken")])
    assert api.check_error(503, api.get("/health_generate"))["code"] == "engine_failing"


@pytest.mark.parametrize("name", ["id", "x-request-id", "rid", "all"])
def test_abort_request_ends_a_request_by_any_of_its_names(name: str) -> None:
    async def test() -> None:
        api = Api(slowly)
        body = {"text": "Hi", "sampling_params": {"max_new_tokens": 500}, "stream": True, "rid": "mine"}
        num_tokens = 500 if name == "all" else 20
        call, other = (
            Exchange(api, GENERATE, body),
            Exchange(api, COMPLETIONS, {"prompt": "x", "max_tokens": num_tokens}),
        )
        headers = dict((await call.sent.get())["headers"])
        answer_id = (await call.body()).partition(b'"id":"')[2].partition(b'"')[0].decode()
        names = {"id": answer_id, "x-request-id": headers[b"x-request-id"].decode(), "rid": "mine"}
        while len(api.link.requests) < 2:  # the other one is still tokenized
            await asyncio.sleep(0.01)
        aborted = Exchange(api, "/abort_request", {"abort_all": True} if name == "all" else {"rid": names[name]})
        num = 2 if name == "all" else 1
        assert await aborted.rest() == b'{"aborted":%d}' % num
        assert b'"code":"request_aborted"' in await call.rest()
        assert (b"request_aborted" in await other.rest()) == (name == "all")
        assert api.state.metrics.aborted["abort"] == num
        api.check_at_rest()

    asyncio.run(asyncio.wait_for(test(), 60))


def test_abort_request_ends_a_request_that_is_still_tokenized() -> None:
    async def test() -> None:
        api = Api()
        is_tokenizing = asyncio.Event()

        async def prepare(*args: Any, **kwargs: Any) -> Any:
            is_tokenizing.set()
            await asyncio.sleep(60)

        api.engine.prepare = prepare  # type: ignore[method-assign]
        call = Exchange(api, GENERATE, {"text": "Hi", "rid": "mine"})
        await is_tokenizing.wait()
        assert api.state.running.abort("mine") == 1
        assert b"request_aborted" in await call.rest()

    asyncio.run(asyncio.wait_for(test(), 60))


def test_requests_of_one_name_all_get_their_own_answer() -> None:
    api = Api()
    bodies = [{"text": text, "rid": "same", "sampling_params": {"max_new_tokens": 3}} for text in ("a", "b")]

    async def test() -> None:
        calls = [Exchange(api, GENERATE, body) for body in bodies]
        assert [(await call.rest()).partition(b'"text":')[2][:5] for call in calls] == [b'"aaa"', b'"bbb"']

    asyncio.run(test())


def test_aborting_nobody_is_no_error_but_saying_nothing_is(api: Api) -> None:
    assert api.whole("/abort_request", rid="nobody") == {"aborted": 0}
    assert api.error(400, "/abort_request")["param"] == "rid"


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", CHAT, 405), ("POST", "/v1/models", 405), ("GET", "/v1/nope", 404)]
)
def test_wrong_paths_and_methods_are_openai_errors_too(api: Api, method: str, path: str, status: int) -> None:
    response = api.get(path) if method == "GET" else api.post(path)
    assert api.check_error(status, response)["message"]


def test_a_request_s_salt_reaches_the_engine(api: Api) -> None:
    for path in (CHAT, COMPLETIONS, GENERATE):
        for body, salt in [({"cache_salt": "mine"}, "mine"), ({"cache_salt": None}, ""), ({}, "")]:
            text = {GENERATE: {"text": "Hi"}, COMPLETIONS: {"prompt": "Hi"}, CHAT: {"messages": HI}}[path]
            api.whole(path, **text, **body)
            assert api.link.requests[-1].cache_salt == salt


def test_the_template_gets_its_variables(api: Api) -> None:
    api.engine.tokenizer.hf.chat_template = "{{ reasoning_effort }}{{ x }}{{ messages[0].content }}"
    try:
        fields = {"chat_template_kwargs": {"x": "-x-"}, "reasoning_effort": "low"}
        assert api.whole("/tokenize", messages=HI, **fields)["tokens"] == ids_of("low-x-Hi")
    finally:
        api.engine.tokenizer.hf.chat_template = TEMPLATE


SHOWING = (
    "{% for m in messages %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments.x }}{% endfor %}|{% endfor %}"
)


@pytest.mark.parametrize(
    ("message", "written"),
    [
        ({"content": None, "function_call": {"name": "f", "arguments": '{"x": 5}'}}, "f5"),
        ({"content": "Well", "function_call": {"name": "f", "arguments": '{"x": 5}'}}, "Wellf5"),
        ({"content": [{"type": "refusal", "refusal": "No."}, {"type": "text", "text": "Never."}]}, "No.Never."),
        ({"content": None, "refusal": "No."}, "No."),
        ({"content": "", "refusal": None}, ""),
    ],
)
def test_what_an_assistant_did_before_reaches_the_template(api: Api, message: dict[str, Any], written: str) -> None:
    api.engine.tokenizer.hf.chat_template = SHOWING
    try:
        made = api.whole("/tokenize", messages=[*HI, {"role": "assistant", **message}])
        assert made["tokens"] == ids_of(f"Hi|{written}|")
    finally:
        api.engine.tokenizer.hf.chat_template = TEMPLATE


def test_no_best_tokens_without_logprobs_is_nothing_asked(api: Api) -> None:
    for logprobs in (None, False):
        assert api.whole(CHAT, messages=HI, top_logprobs=0, logprobs=logprobs)["choices"][0]["logprobs"] is None


def test_an_answer_may_go_on_where_the_last_message_ends(api: Api) -> None:
    messages = [*HI, {"role": "assistant", "content": "Well"}]
    made = api.whole("/tokenize", messages=messages, continue_final_message=True, return_token_strs=True)
    assert "".join(made["token_strs"]).endswith("assistant: Well")
    error = api.error(400, CHAT, messages=messages, continue_final_message=True, add_generation_prompt=True)
    assert error["param"] == "continue_final_message"


@pytest.mark.parametrize(
    "name", ["chat_template", "tokenize", "conversation", "messages", "self", "hf", "tools", "add_generation_prompt"]
)
def test_what_is_no_variable_of_a_template_is_refused(api: Api, name: str) -> None:
    for value in (True, [], "x", {"a": 1}):
        error = api.error(400, CHAT, messages=HI, chat_template_kwargs={name: value})
        assert error["param"] == "chat_template_kwargs"
        assert name in error["message"]


@pytest.mark.parametrize("path", [CHAT, "/tokenize", "/cache/probe", "/cache/explain", "/cache/purge", "/inspect/path"])
def test_a_misspelt_variable_of_the_template_is_refused_and_one_that_it_does_not_read_is_not(path: str) -> None:
    source = make_tokenizer()
    source.chat_template = TEMPLATE + "{% if enable_thinking %}!{% endif %}"
    api = Api(says("Hello"), tokenizer=Tokenizer(source))
    error = api.error(400, path, messages=HI, chat_template_kwargs={"enable_thinkng": True})
    assert error["param"] == "chat_template_kwargs.enable_thinkng"
    assert "did you mean enable_thinking?" in error["message"]
    for variable in ("thinking", "enable_thinking", "eos_token", "preserve_thinking"):
        assert api.post(path, messages=HI, chat_template_kwargs={variable: True}).status_code == 200


def test_a_request_has_a_bounded_number_of_names(api: Api) -> None:
    assert api.error(400, GENERATE, text="Hi", rid=["mine"] * 2049)["param"] == "rid"
