"""Stream == whole answer == the tokenizer's own text, for text, usage, logprobs and reasons; and the form of events."""

from __future__ import annotations

from typing import Any

import pytest
from support.answers import joined_chat, joined_completion, whole_chat, whole_completion
from support.asgi import CHAT, COMPLETIONS, GENERATE, HI, TOKENIZER, Api, ids_of, says
from support.scripted_link import logprob_of
from support.tiny_model import EOS

from minisgl.server.gate import Gate
from minisgl.server.stream import generate_logprobs

TEXT = 'Ein 🦀 läuft über 한글, 世界 und ďábel: \u0000 "x" \\ </s>'
STOPS = {
    "none": None,
    "across tokens": "über",
    "inside a character's bytes": ["글", "界"],
    "earliest wins": ["世", "ft ü"],
}
USAGE = {"include_usage": True}


@pytest.mark.parametrize("stop", STOPS.values(), ids=STOPS)
@pytest.mark.parametrize("tokens_a_step", [1, 3, 1000])
@pytest.mark.parametrize("max_tokens", [None, 6, 40])
@pytest.mark.parametrize("logprobs", [False, True])
def test_a_streamed_chat_is_the_whole_one(
    stop: Any, tokens_a_step: int, max_tokens: int | None, logprobs: bool
) -> None:
    api = Api(says(TEXT, tokens_a_step), cached_len=5)
    body = {"messages": HI, "stop": stop, "max_tokens": max_tokens, "logprobs": logprobs}
    body["top_logprobs"] = 2 if logprobs else None
    whole = api.whole(CHAT, **body)
    *events, last = api.events(CHAT, **body, stream_options=USAGE)
    assert joined_chat(events) == whole_chat(whole)
    assert last["choices"] == []
    assert last["usage"] == whole["usage"]
    (choice,) = whole_chat(whole)
    num_tokens = whole["usage"]["completion_tokens"]
    ids = [*ids_of(TEXT), EOS][:num_tokens]
    if stop is None:
        assert choice["text"] == TOKENIZER.decode(ids)
    else:
        assert TEXT.startswith(choice["text"].rstrip("\ufffd"))
        assert not any(each in choice["text"] for each in ([stop] if isinstance(stop, str) else stop))
    assert len(choice["logprobs"]) == (num_tokens if logprobs else 0)
    api.check_at_rest()


@pytest.mark.parametrize("stop", STOPS.values(), ids=STOPS)
@pytest.mark.parametrize("tokens_a_step", [1, 3])
@pytest.mark.parametrize("echo", [False, True])
@pytest.mark.parametrize("logprobs", [None, 0, 2])
def test_a_streamed_completion_is_the_whole_one(
    stop: Any, tokens_a_step: int, echo: bool, logprobs: int | None
) -> None:
    api = Api(says(TEXT, tokens_a_step))
    body = {"prompt": ["ä🦀", "bé"], "n": 2, "max_tokens": 30}
    body |= {"stop": stop, "echo": echo, "logprobs": logprobs}
    whole = api.whole(COMPLETIONS, **body)
    *events, last = api.events(COMPLETIONS, **body, stream_options=USAGE)
    assert joined_completion(events) == whole_completion(whole)
    assert last["usage"] == whole["usage"]
    for choice in whole_completion(whole):
        check_offsets(choice)


def check_offsets(choice: dict[str, Any]) -> None:
    """An offset is where its token's text begins in the choice's text."""
    logprobs = choice["logprobs"]
    if not logprobs:
        return
    assert len({len(values) for values in logprobs.values()}) == 1
    for token, offset in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
        if not token.startswith("bytes:") and offset < len(choice["text"]):
            assert choice["text"][offset:].startswith(token)


@pytest.mark.parametrize("tokens_a_step", [1, 4])
def test_a_streamed_generation_repeats_the_text_so_far(tokens_a_step: int) -> None:
    api = Api(says(TEXT, tokens_a_step))
    body = {"text": ["a", "bc"], "sampling_params": {"n": 2, "max_new_tokens": 30}, "return_logprob": True}
    whole = api.whole(GENERATE, **body)
    latest: dict[int, Any] = {}
    for event in api.events(GENERATE, **body):
        before = latest.get(event["index"])
        assert before is None or event["text"].startswith(before["text"].rstrip("\ufffd"))
        assert before is None or before["meta_info"]["finish_reason"] is None
        latest[event["index"]] = event
    assert [latest[i]["text"] for i in range(4)] == [each["text"] for each in whole]
    for i in range(4):
        for name in ("prompt_tokens", "completion_tokens", "cached_tokens", "finish_reason", "output_token_logprobs"):
            assert latest[i]["meta_info"][name] == whole[i]["meta_info"][name]


def test_no_chunk_has_half_a_character_or_a_part_of_a_stop_string() -> None:
    api = Api(says("a🦀b, E, F, G"))
    pieces = [
        event["choices"][0]["text"] for event in api.events(COMPLETIONS, prompt="Hi", max_tokens=99, stop=["E, F"])
    ]
    assert "".join(pieces) == "a🦀b, "
    assert "\ufffd" not in "".join(pieces)
    assert "" not in pieces[:-1]


@pytest.mark.parametrize(
    ("options", "num_usages", "nulls"),
    [
        (None, 0, False),
        ({}, 0, False),
        ({"include_usage": False}, 0, False),
        ({"include_usage": None}, 0, False),
        ({"include_usage": True}, 1, True),
    ],
)
@pytest.mark.parametrize(("path", "prompt"), [(CHAT, {"messages": HI}), (COMPLETIONS, {"prompt": "Hi"})])
def test_usage_comes_only_when_it_is_asked_for(
    path: str, prompt: dict[str, Any], options: Any, num_usages: int, nulls: bool
) -> None:
    events = Api(says("Hello")).events(path, **prompt, n=2, stream_options=options)
    without_choices = [event for event in events if not event["choices"]]
    assert len(without_choices) == num_usages
    assert without_choices == events[len(events) - num_usages :]
    for event in events[: len(events) - num_usages]:
        assert event.get("usage", "absent") == (None if nulls else "absent")


def test_continuous_usage_grows_to_the_whole() -> None:
    api = Api(says("Hello"), cached_len=1)
    options = {"include_usage": True, "continuous_usage_stats": True}
    *events, last = api.events(COMPLETIONS, prompt=["ab", "cde"], max_tokens=3, stream_options=options)
    counts = [event["usage"]["completion_tokens"] for event in events]
    assert counts == sorted(counts)
    assert events[-1]["usage"] == last["usage"]
    assert last["usage"] == {
        "prompt_tokens": 5,
        "completion_tokens": 6,
        "total_tokens": 11,
        "prompt_tokens_details": {"cached_tokens": 2},
    }


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_cached_tokens_are_always_there(path: str) -> None:
    for cached in (0, 3):
        usage = Api(says("x"), cached_len=cached).whole(path, messages=HI, prompt="Hello", n=2)["usage"]
        assert usage["prompt_tokens_details"] == {"cached_tokens": cached}


def test_an_answer_that_ends_at_once_has_its_role_and_its_reason() -> None:
    events = Api(says("")).events(CHAT, messages=HI)
    assert joined_chat(events) == [{"text": "", "reason": "stop", "logprobs": []}]


def test_events_say_which_object_they_are() -> None:
    api = Api(says("Hello"))
    for path, name in [(CHAT, "chat.completion.chunk"), (COMPLETIONS, "text_completion")]:
        events = api.events(path, messages=HI, prompt="Hi", stream_options=USAGE)
        assert {event["object"] for event in events} == {name}
        assert len({event["id"] for event in events}) == 1
    assert api.whole(CHAT, messages=HI)["object"] == "chat.completion"
    assert api.whole(COMPLETIONS, prompt="Hi")["object"] == "text_completion"


def test_ids_of_answers_are_ours_and_differ() -> None:
    api = Api(says("x"))
    assert len({api.whole(CHAT, messages=HI)["id"] for _ in range(5)}) == 5


def test_choices_are_numbered_by_prompt_then_by_choice() -> None:
    api = Api()
    body = {"prompt": ["a", "bb", "ccc"], "n": 2, "max_tokens": 3}
    whole = api.whole(COMPLETIONS, **body)
    assert [choice["text"] for choice in whole["choices"]] == ["aaa", "aaa", "bbb", "bbb", "ccc", "ccc"]
    assert whole["usage"]["prompt_tokens"] == 6
    assert joined_completion(api.events(COMPLETIONS, **body)) == whole_completion(whole)


def test_two_hundred_prompts_are_answered_in_order() -> None:
    prompts = [chr(ord("a") + i % 26) for i in range(200)]
    whole = Api().whole(COMPLETIONS, prompt=prompts, max_tokens=1)
    assert [choice["text"] for choice in whole["choices"]] == prompts


def test_echo_begins_with_the_prompt_and_its_logprobs() -> None:
    api = Api(says("xyz"))
    (choice,) = api.whole(COMPLETIONS, prompt=[ids_of("abc")], echo=True, logprobs=1, max_tokens=1)["choices"]
    logprobs = choice["logprobs"]
    assert choice["text"] == "abcx"
    assert logprobs["tokens"] == ["a", "b", "c", "x"]
    assert logprobs["text_offset"] == [0, 1, 2, 3]
    assert logprobs["token_logprobs"] == [None, *(logprob_of(i, 1).logprob for i in ids_of("bcx"))]
    assert logprobs["top_logprobs"][0] is None
    for value, token, top in list(
        zip(*(logprobs[k] for k in ("token_logprobs", "tokens", "top_logprobs")), strict=True)
    )[1:]:
        assert top[token] == value


def test_echo_without_new_tokens_is_the_prompt() -> None:
    (choice,) = Api().whole(COMPLETIONS, prompt="abc", echo=True, logprobs=0, max_tokens=0)["choices"]
    assert (choice["text"], choice["finish_reason"], len(choice["logprobs"]["tokens"])) == ("abc", "length", 3)


@pytest.mark.parametrize("prompt", ["abc", ids_of("abc")])
def test_echo_without_new_tokens_needs_no_logprobs_and_shows_none(prompt: Any) -> None:
    api = Api()
    body = {"prompt": prompt, "echo": True, "max_tokens": 0}
    (choice,) = (whole := api.whole(COMPLETIONS, **body))["choices"]
    assert (choice["text"], choice["finish_reason"], choice["logprobs"]) == ("abc", "length", None)
    assert whole["usage"]["completion_tokens"] == 0
    assert joined_completion(api.events(COMPLETIONS, **body)) == whole_completion(whole)


@pytest.mark.parametrize("logprobs", [None, 1])
@pytest.mark.parametrize("echo", [False, True])
@pytest.mark.parametrize(
    ("prompt", "n"), [("abc", 1), ("abc", 2), (["abc", "de"], 1), ([ids_of("abc"), ids_of("de")], 2)]
)
def test_a_completion_may_be_asked_for_no_token(prompt: Any, n: int, echo: bool, logprobs: int | None) -> None:
    """OpenAI allows it: the prompt is computed, and stays in the cache."""
    api = Api()
    body = {"prompt": prompt, "n": n, "echo": echo, "logprobs": logprobs, "max_tokens": 0}
    texts = ["abc", "de"] if isinstance(prompt, list) else ["abc"]
    whole = api.whole(COMPLETIONS, **body)
    choices = whole["choices"]
    assert [choice["text"] for choice in choices] == [text if echo else "" for text in texts for _ in range(n)]
    assert {choice["finish_reason"] for choice in choices} == {"length"}
    for choice in choices:
        assert (choice["logprobs"] is None) == (logprobs is None)
        assert logprobs is None or len(choice["logprobs"]["tokens"]) == len(choice["text"])
        if logprobs is not None and not echo:
            assert set(map(len, choice["logprobs"].values())) == {0}
            choice["logprobs"] = None  # in a stream no event has an entry
    usage = whole["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (sum(map(len, texts)), 0)
    *events, last = api.events(COMPLETIONS, **body, stream_options=USAGE)
    assert joined_completion(events) == whole_completion(whole)
    assert last["usage"] == usage


def test_generate_gives_one_object_for_one_text_and_a_list_for_lists() -> None:
    api = Api(says("Hello"))
    one = api.whole(GENERATE, text="Hi", sampling_params={"max_new_tokens": 2})
    assert (one["text"], one["output_ids"]) == ("He", ids_of("He"))
    assert one["meta_info"]["finish_reason"] == {"type": "length", "length": 2}
    assert [each["text"] for each in api.whole(GENERATE, input_ids=[[1], [2]])] == ["Hello", "Hello"]
    assert len(api.whole(GENERATE, text="Hi", sampling_params={"n": 2})) == 2
    assert api.whole(GENERATE, input_ids=[1, 2], lora_path=None)["meta_info"]["prompt_tokens"] == 2


@pytest.mark.parametrize("return_logprob", [False, True])
def test_generate_may_be_asked_for_no_token_as_sglang_s_clients_do_to_fill_the_cache(return_logprob: bool) -> None:
    api = Api()
    body = {"text": "Hi", "sampling_params": {"max_new_tokens": 0}, "return_logprob": return_logprob}
    (event,) = api.events(GENERATE, **body)
    for answer in (api.whole(GENERATE, **body), event):
        meta = answer["meta_info"]
        assert (answer["text"], meta["completion_tokens"], meta["prompt_tokens"]) == ("", 0, 2)
        assert "input_token_logprobs" not in meta
        assert ("output_token_logprobs" in meta) == return_logprob


def test_generate_gives_the_prompt_s_logprobs_from_where_they_are_wanted() -> None:
    api = Api(says("x"))
    body = {"text": "abcd", "return_logprob": True, "top_logprobs_num": 1, "return_text_in_logprobs": True}
    meta = api.whole(GENERATE, **body, logprob_start_len=2)["meta_info"]
    assert [entry[2] for entry in meta["input_token_logprobs"]] == ["c", "d"]
    assert [entry[2] for entry in meta["output_token_logprobs"]] == ["x", "</s>"]
    assert len(meta["input_top_logprobs"]) == 2
    everything = api.whole(GENERATE, **body, logprob_start_len=0)["meta_info"]["input_token_logprobs"]
    assert everything[0] == [None, ids_of("a")[0], "a"]
    assert "input_token_logprobs" not in api.whole(GENERATE, **body)["meta_info"]


@pytest.mark.parametrize(("path", "body"), [(CHAT, {"messages": HI, "n": 4}), (GENERATE, {"text": ["a", "b"]})])
def test_no_answer_reads_the_tokenizer_s_own_description_again(
    path: str, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which takes milliseconds where the vocabulary is large: it was read for every choice and every answer."""
    api = Api(says("Hello"))
    monkeypatch.setattr("minisgl.tokenizer.tokenizer._decoder_kinds", lambda decoder: pytest.fail("read again"))
    api.whole(path, **body, logprobs=path == CHAT, return_logprob=True, return_text_in_logprobs=True)


def test_a_streamed_generation_writes_every_logprob_once_and_the_prompt_s_only_at_both_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    num_written = 0
    ready = generate_logprobs.ready

    def count(value: Any) -> Any:
        nonlocal num_written
        num_written += 1
        return ready(value)

    monkeypatch.setattr(generate_logprobs, "ready", count)
    sampling = {"max_new_tokens": 30, "n": 2}
    body = {"text": ["abcdefgh", "ij"], "sampling_params": sampling, "return_logprob": True, "logprob_start_len": 0}
    events = Api(lambda request: [*ids_of("x"), 0.01] * 30).events(GENERATE, **body)
    assert num_written == 2 * (8 + 2) + 4 * 30
    for index in range(4):
        metas = [event["meta_info"] for event in events if event["index"] == index]
        assert [len(meta.get("input_token_logprobs", ())) > 0 for meta in metas] == [
            i in (0, len(metas) - 1) for i in range(len(metas))
        ]
        assert [len(meta["output_token_logprobs"]) for meta in metas] == [meta["completion_tokens"] for meta in metas]
        assert len(metas) > 1


@pytest.mark.parametrize(("path", "prompt"), [(CHAT, {"messages": HI}), (GENERATE, {"text": "Hi"})])
def test_the_engine_s_side_keeps_no_text_of_a_stream(path: str, prompt: dict[str, Any]) -> None:
    kept: list[Any] = []
    api = Api(says("Hello"))
    run = api.engine.run

    async def note(*args: Any, **kwargs: Any) -> Any:
        async for deltas in run(*args, **kwargs):
            kept.extend(delta["output"] for delta in deltas if "output" in delta)
            yield deltas

    api.engine.run = note  # type: ignore[method-assign]
    body = {"logprobs": path == CHAT, "return_logprob": True, "logprob_start_len": 0}
    for stream in (False, True):
        assert api.post(path, **prompt, **body, stream=stream).status_code == 200
    whole, streamed = kept
    assert (whole["text"], len(whole["logprobs"])) == ("Hello", 6)
    assert streamed["text"] == ""
    assert not {"logprobs", "prompt_logprobs"} & streamed.keys()
    assert streamed["token_ids"] == whole["token_ids"]


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (CHAT, {"messages": HI, "n": 120, "logprobs": True, "top_logprobs": 20}, "top_logprobs"),
        (COMPLETIONS, {"prompt": ["a" * 500] * 120, "echo": True, "n": 4, "logprobs": 5}, "logprobs"),
        (
            GENERATE,
            {"text": ["a" * 500] * 120, "return_logprob": True, "logprob_start_len": 0, "top_logprobs_num": 20},
            "top_logprobs_num",
        ),
    ],
)
def test_an_answer_of_too_many_logprobs_is_refused(
    path: str, body: dict[str, Any], field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = Api(gate=Gate(max_running=500, max_queued=0)).error(400, path, **body)
    assert error["param"] == field
    assert "1048576" in error["message"]
    one = {CHAT: {"n": 1}, COMPLETIONS: {"prompt": "a", "n": 1}, GENERATE: {"text": "a"}}[path]
    assert Api(says("x")).post(path, **(body | one)).status_code == 200


@pytest.mark.parametrize("tokens_a_step", [1, 3])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_token_ids_are_told_whole_and_in_a_stream_under_vllm_s_names(path: str, tokens_a_step: int) -> None:
    """A chat has its prompt's beside the choices, a completion within them; a stream in its first event. A character
    that came in part has no text yet, but ids.
    """
    api = Api(says("né\U0001f980.", tokens_a_step))
    asked = {"messages": HI} if path == CHAT else {"prompt": "Hi"}
    whole = api.whole(path, **asked, max_tokens=30, return_token_ids=True)
    events = api.events(path, **asked, max_tokens=30, return_token_ids=True)
    prompt = api.link.requests[-1].input_ids.tolist()
    expected = [*ids_of("né\U0001f980."), EOS]
    assert (whole if path == CHAT else whole["choices"][0])["prompt_token_ids"] == prompt
    assert whole["choices"][0]["token_ids"] == expected
    firsts = [event if path == CHAT else event["choices"][0] for event in events]
    assert [event.get("prompt_token_ids") for event in firsts] == [prompt] + [None] * (len(events) - 1)
    told = [token_id for event in events for token_id in event["choices"][0].get("token_ids", [])]
    assert told == expected


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_token_ids_of_several_choices_are_those_of_each(path: str) -> None:
    api = Api(says("ab"))
    asked = {"messages": HI} if path == CHAT else {"prompt": ["Hi", "Ho!"]}
    events = api.events(path, **asked, max_tokens=9, n=2, return_token_ids=True)
    told: dict[int, list[int]] = {}
    for choice in (choice for event in events for choice in event["choices"]):
        told.setdefault(choice["index"], []).extend(choice.get("token_ids", []))
    assert told == {key: [*ids_of("ab"), EOS] for key in range(2 if path == CHAT else 4)}


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_nobody_is_told_token_ids_who_did_not_ask(path: str) -> None:
    api = Api(says("ab"))
    asked = {"messages": HI} if path == CHAT else {"prompt": "Hi"}
    for body in ({}, {"return_token_ids": False}, {"logprobs": True if path == CHAT else 1}):
        assert b"token_ids" not in api.post(path, **asked, **body).content
        assert b"token_ids" not in api.post(path, **asked, **body, stream=True).content
