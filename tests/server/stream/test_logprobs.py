from __future__ import annotations

import json

from support.asgi import CHAT, HI, TOKENIZER, Api, ids_of, says
from support.tiny_model import EOS

from minisgl.core import TokenLogprobs
from minisgl.server.stream.events import encode
from minisgl.server.stream.logprobs import CompletionLogprobsMaker, token_name


def test_a_part_of_a_character_is_named_by_its_bytes() -> None:
    assert token_name("é".encode()) == "é"
    assert token_name(b"\xf0\x9f") == "bytes:\\xf0\\x9f"


def test_a_chat_s_bytes_joined_are_its_text() -> None:
    body = Api(says("a🦀é")).whole(CHAT, messages=HI, logprobs=True)
    *tokens, end = body["choices"][0]["logprobs"]["content"]
    assert bytes(byte for token in tokens for byte in token["bytes"]).decode() == "a🦀é"
    assert end["token"] == "</s>"


def test_the_token_itself_is_always_among_the_best_with_an_equal_number() -> None:
    maker = CompletionLogprobsMaker(TOKENIZER, skip_special_tokens=True)
    a, b = ids_of("ab")
    maker.add([TokenLogprobs(a, -3.5, ((b, -0.5),))])
    assert json.loads(encode(maker.take().top_logprobs)) == [{"a": -3.5, "b": -0.5}]


def test_what_looks_the_same_keeps_the_better_number() -> None:
    maker = CompletionLogprobsMaker(TOKENIZER, skip_special_tokens=True)
    maker.add([TokenLogprobs(290, -3.5, ((291, -0.5),))])  # neither has a text
    assert json.loads(encode(maker.take().top_logprobs)) == [{"": -0.5}]


def test_special_tokens_that_are_not_shown_have_no_length() -> None:
    ids = [EOS, *ids_of("ab")]
    hidden = CompletionLogprobsMaker(TOKENIZER, skip_special_tokens=True)
    shown = CompletionLogprobsMaker(TOKENIZER, skip_special_tokens=False)
    for maker in (hidden, shown):
        maker.add(TokenLogprobs(token_id, -1.0) for token_id in ids)
    assert hidden.take().text_offset == [0, 0, 1]
    assert shown.take().text_offset == [0, 4, 5]
