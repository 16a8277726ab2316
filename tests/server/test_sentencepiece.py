"""Answers by a tokenizer of the sentencepiece kind keep the space before their first word, on every endpoint."""

from __future__ import annotations

from typing import Any

import pytest
from support.any_endpoint import WAYS, answer
from support.asgi import CHAT, COMPLETIONS, GENERATE, HI, Api
from support.ggml_metadata import sentencepiece_metadata

from minisgl.tokenizer import Tokenizer
from minisgl.tokenizer.gguf_tokenizer import tokenizer_from_gguf

TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ 'a ' + m.content }}{% endfor %}"
TOKENIZER = Tokenizer(tokenizer_from_gguf(sentencepiece_metadata() | {"tokenizer.chat_template": TEMPLATE}))
AB, ABC = TOKENIZER.backend.token_to_id("▁ab"), TOKENIZER.backend.token_to_id("▁abc")


def make_api(*ids: int) -> Api:
    return Api(lambda request: ids, tokenizer=TOKENIZER)


@WAYS
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, GENERATE])
def test_the_first_word_of_an_answer_keeps_its_space(path: str, stream: bool) -> None:
    assert answer(make_api(AB, ABC), path, stream, max_tokens=2) == (" ab abc", "length", 2)


@WAYS
def test_a_prompt_that_comes_back_is_not_glued_to_its_answer(stream: bool) -> None:
    body = {"prompt": "ab", "echo": True, "logprobs": 1, "max_tokens": 2}
    api = make_api(AB, ABC)
    made = api.events(COMPLETIONS, **body) if stream else [api.whole(COMPLETIONS, **body)]
    choices = [event["choices"][0] for event in made]
    text = "".join(choice["text"] for choice in choices)
    logprobs = [choice["logprobs"] for choice in choices if choice["logprobs"]]
    tokens = [token for made in logprobs for token in made["tokens"]]
    offsets = [offset for made in logprobs for offset in made["text_offset"]]
    assert text == "ab ab abc"
    assert tokens == ["<s>", "ab", " ab", " abc"]
    assert offsets == [0, 0, 2, 5]


def test_tokens_of_logprobs_join_to_the_text() -> None:
    choice = make_api(AB, ABC).whole(COMPLETIONS, prompt="b", logprobs=0, max_tokens=2)["choices"][0]
    assert "".join(choice["logprobs"]["tokens"]) == choice["text"] == " ab abc"
    chat = make_api(AB, ABC).whole(CHAT, messages=HI, logprobs=True, max_tokens=2)["choices"][0]
    assert "".join(token["token"] for token in chat["logprobs"]["content"]) == chat["message"]["content"] == " ab abc"


@pytest.mark.parametrize(
    ("prompt", "text"), [("ab", " ab"), ("ab ", " ab"), ([AB], " ab"), ([1], "ab"), ([AB, 1], " ab")]
)
def test_prompt_and_text_are_what_all_tokens_decode_to(prompt: Any, text: str) -> None:
    api = make_api(AB)
    choice = api.whole(COMPLETIONS, prompt=prompt, max_tokens=1, logprobs=0)["choices"][0]
    assert choice["text"] == "".join(choice["logprobs"]["tokens"]) == text
    ids = api.link.requests[-1].input_ids.tolist()
    assert TOKENIZER.decode(ids) + text == TOKENIZER.decode([*ids, AB])


def test_each_of_several_choices_keeps_its_space() -> None:
    choices = make_api(AB).whole(COMPLETIONS, prompt=["a", "b"], n=2, max_tokens=1)["choices"]
    assert [choice["text"] for choice in choices] == [" ab"] * 4


def test_a_client_that_appends_the_answer_to_its_prompt_sends_the_same_tokens_again() -> None:
    api = make_api(AB, ABC)
    text = api.whole(COMPLETIONS, prompt="ab", max_tokens=2)["choices"][0]["text"]
    api.whole(COMPLETIONS, prompt="ab" + text, max_tokens=2)
    first, second = (request.input_ids.tolist() for request in api.link.requests)
    assert second == [*first, AB, ABC]


def test_a_stop_string_may_begin_with_the_space_of_the_first_word() -> None:
    assert answer(make_api(AB, ABC), COMPLETIONS, False, stop=" ab")[:2] == ("", "stop")
    assert answer(make_api(AB, ABC), COMPLETIONS, True, stop=" abc")[:2] == (" ab", "stop")
