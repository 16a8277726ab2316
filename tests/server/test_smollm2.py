"""The API over the real engine and SmolLM2: what a scripted one cannot show."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from support.answers import joined_chat, joined_completion, whole_chat, whole_completion
from support.any_endpoint import WAYS, answer
from support.asgi import CHAT, COMPLETIONS, GENERATE, Api

from minisgl.llm import AsyncLLM

pytestmark = pytest.mark.slow
ALPHABET = "The alphabet is A, B, C,"
STORY = "Once upon a time, in a small village by the sea, there lived an old fisherman who"


@pytest.fixture(scope="module")
def llm() -> Iterator[AsyncLLM]:
    llm = AsyncLLM("smollm2", dtype="float32", num_page_override=4096)
    yield llm
    llm.llm.cache_manager.check_integrity()
    asyncio.run(llm.shutdown())


@pytest.fixture
def api(llm: AsyncLLM) -> Api:
    """With an empty cache."""
    api = Api(engine=llm.client)
    assert api.post("/flush_cache").status_code == 200
    return api


def text_of(api: Api, **body: Any) -> str:
    text: str = api.whole(COMPLETIONS, **body)["choices"][0]["text"]
    return text


def cached(body: Any) -> int:
    tokens: int = body["usage"]["prompt_tokens_details"]["cached_tokens"]
    return tokens


@pytest.mark.parametrize("max_tokens", [8, 13, 30])
def test_text_of_many_bytes_a_character_streams_as_the_tokenizer_decodes_it(
    api: Api, llm: AsyncLLM, max_tokens: int
) -> None:
    body = {"prompt": "한글 " * 6, "temperature": 0, "max_tokens": max_tokens, "logprobs": 2}
    whole, events = api.whole(COMPLETIONS, **body), api.events(COMPLETIONS, **body)
    (streamed,), (choice,) = joined_completion(events), whole_completion(whole)
    assert (streamed["text"], streamed["reason"]) == (choice["text"], choice["reason"])
    assert streamed["logprobs"]["tokens"] == choice["logprobs"]["tokens"]
    assert streamed["logprobs"]["text_offset"] == choice["logprobs"]["text_offset"]
    assert streamed["logprobs"]["token_logprobs"] == pytest.approx(choice["logprobs"]["token_logprobs"], abs=1e-4)
    ids = api.whole(GENERATE, text=body["prompt"], sampling_params={"temperature": 0, "max_new_tokens": max_tokens})
    assert choice["text"] == llm.llm.tokenizer.decode(ids["output_ids"])
    assert not any("\ufffd" in event["choices"][0]["text"] for event in events[:-2])


@pytest.mark.parametrize("stop", ["E, F", [", E", "E"], ["never", "G", "x", "y"]])
def test_the_text_ends_before_a_stop_string_over_tokens_which_are_counted(api: Api, llm: AsyncLLM, stop: Any) -> None:
    """The expected text and number come from what the model says when nothing stops it."""
    free = api.whole(GENERATE, text=ALPHABET, sampling_params={"temperature": 0, "max_new_tokens": 10})
    stops, text = [stop] if isinstance(stop, str) else stop, free["text"]
    wanted = text[: min(text.index(each) for each in stops if each in text)]
    texts = [llm.llm.tokenizer.decode(free["output_ids"][:i]) for i in range(11)]
    num_tokens = next(i for i, shorter in enumerate(texts) if any(each in shorter for each in stops))
    body = {"prompt": ALPHABET, "temperature": 0, "max_tokens": 10, "stop": stop}
    for stream in (False, True):
        assert answer(api, COMPLETIONS, stream, **body) == (wanted, "stop", num_tokens)


@WAYS
def test_a_list_of_parts_is_their_joined_text_and_null_is_refused(api: Api, stream: bool) -> None:
    """The template of the model raises for either, and for an empty list."""

    def chat(content: Any) -> dict[str, Any]:
        return {"messages": [{"role": "user", "content": content}]}

    parts = [{"type": "text", "text": "Say"}, {"type": "text", "text": " hi"}]
    for content, text in ((parts, "Say hi"), ([], "")):
        assert api.whole("/tokenize", **chat(content)) == api.whole("/tokenize", **chat(text))
    assert api.error(400, CHAT, **chat(None), stream=stream)["param"] == "messages[0].content"
    given, expected = (
        answer(api, CHAT, stream, **chat(content), temperature=0, max_tokens=2) for content in (parts, "Say hi")
    )
    assert given == expected


def test_echoed_logprobs_are_the_same_cold_and_cached(api: Api) -> None:
    body = {"prompt": STORY, "temperature": 0, "max_tokens": 1, "echo": True, "logprobs": 2}
    cold, warm = (api.whole(COMPLETIONS, **body)["choices"][0]["logprobs"] for _ in range(2))
    assert cold["tokens"] == warm["tokens"]
    assert len(cold["tokens"]) == api.whole("/tokenize", prompt=STORY)["count"] + 1
    assert cold["token_logprobs"][0] is None
    assert warm["token_logprobs"][1:] == pytest.approx(cold["token_logprobs"][1:], abs=1e-4)


def test_a_prefix_hit_changes_the_usage_and_not_the_answer(api: Api) -> None:
    body = {"prompt": STORY, "temperature": 0, "max_tokens": 6}
    cold, warm = api.whole(COMPLETIONS, **body), api.whole(COMPLETIONS, **body)
    assert cold["choices"] == warm["choices"]
    assert (cached(cold), cached(warm)) == (0, warm["usage"]["prompt_tokens"] - 1)


def test_two_salts_share_nothing_and_each_its_own(api: Api) -> None:
    for salt in (None, "x", "y"):
        body = {"prompt": STORY, "temperature": 0, "max_tokens": 1, "cache_salt": salt}
        assert cached(api.whole(COMPLETIONS, **body)) == 0
        assert cached(api.whole(COMPLETIONS, **body)) > 0


def test_a_flushed_cache_is_cold(api: Api) -> None:
    body = {"prompt": STORY, "temperature": 0, "max_tokens": 1}
    api.whole(COMPLETIONS, **body)
    api.post("/flush_cache")
    assert cached(api.whole(COMPLETIONS, **body)) == 0


def test_a_probe_foretells_the_usage_and_a_purge_makes_it_cold(api: Api) -> None:
    body = {"messages": [{"role": "user", "content": STORY}], "temperature": 0, "max_tokens": 1}
    api.whole(CHAT, **body)
    longer = [*body["messages"], {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "And?"}]
    probe = api.whole("/cache/probe", messages=longer)
    usage = api.whole(CHAT, **{**body, "messages": longer})["usage"]
    assert probe == {"prompt_tokens": usage["prompt_tokens"], "cached_tokens": cached({"usage": usage})}
    assert probe["cached_tokens"] > 20
    assert api.whole("/cache/purge", messages=body["messages"])["freed_tokens"] >= usage["prompt_tokens"]
    assert api.whole("/cache/probe", messages=longer)["cached_tokens"] == 0


def test_a_seed_repeats_every_choice_and_streams_the_same(api: Api) -> None:
    body = {"messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 6, "n": 4, "seed": 7}
    first = whole_chat(api.whole(CHAT, **body, temperature=1.2))
    assert whole_chat(api.whole(CHAT, **body, temperature=1.2)) == first
    assert joined_chat(api.events(CHAT, **body, temperature=1.2)) == first
    assert len({choice["text"] for choice in first}) > 1


def test_without_a_seed_answers_differ(api: Api) -> None:
    assert len({text_of(api, prompt=STORY, temperature=1.2, max_tokens=6) for _ in range(4)}) > 1


def test_impossible_tokens_have_a_finite_logprob(api: Api) -> None:
    bias = {str(token_id): -100 for token_id in range(100)}
    body = {"prompt": ALPHABET, "logprobs": 5, "top_k": 1, "logit_bias": bias, "max_tokens": 3, "echo": True}
    values = api.whole(COMPLETIONS, **body)["choices"][0]["logprobs"]["token_logprobs"]
    assert all(-9999.0 <= value <= 0 for value in values[1:])


def test_an_empty_text_is_refused_where_the_model_adds_no_bos(api: Api) -> None:
    """And after the refusal the server answers as before."""
    before = text_of(api, prompt=ALPHABET, temperature=0, max_tokens=5)
    assert api.check_error(400, api.post(COMPLETIONS, prompt=""))["param"] == "prompt"
    assert text_of(api, prompt=ALPHABET, temperature=0, max_tokens=5) == before
