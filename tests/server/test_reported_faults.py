"""Texts and chats that other servers got wrong, over HTTP, whole and streamed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from support.any_endpoint import PROMPTS, USAGE, WAYS, answer
from support.asgi import CHAT, COMPLETIONS, GENERATE, HI, TOKENIZER, Api, ids_of, says
from support.scripted_link import Item, Script
from support.tiny_model import EOS, make_tokenizer

from minisgl.tokenizer import Tokenizer, load_tokenizer

BOS_TOKENIZER = Path(__file__).parents[1] / "data" / "tok" / "bos"


def pieces(api: Api, path: str, **sampling: Any) -> list[str]:
    """What each event adds to the text; one that adds nothing has no text or an empty one, and never null."""
    choices = [event["choices"][0] for event in api.events(path, **{"max_tokens": 99, **PROMPTS[path], **sampling})]
    texts = [choice["delta"].get("content", "") if path == CHAT else choice["text"] for choice in choices]
    assert all(isinstance(text, str) for text in texts)
    return texts


def one_by_one(text: str) -> Script:
    """A byte a step, with a moment after each, so that every one may get an event of its own."""

    def script(request: Any) -> Iterable[Item]:
        for token_id in [*ids_of(text), EOS]:
            yield from (token_id, 0.002)

    return script


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_a_character_of_several_tokens_comes_whole_and_once(path: str) -> None:
    text = "🦀 ď 한글 世界"
    texts = pieces(Api(one_by_one(text)), path)
    assert "".join(texts) == text
    assert {len(piece) for piece in texts} == {0, 1}


@WAYS
@pytest.mark.parametrize("path", PROMPTS)
@pytest.mark.parametrize("max_tokens", range(1, 8))
def test_a_character_that_is_cut_off_is_shown_as_the_tokenizer_decodes_it(
    path: str, max_tokens: int, stream: bool
) -> None:
    text, reason, num_tokens = answer(Api(one_by_one("a🦀ďb")), path, stream, max_tokens=max_tokens)
    assert text == TOKENIZER.decode(ids_of("a🦀ďb")[:max_tokens])
    assert (reason, num_tokens) == ("length", max_tokens)


@WAYS
@pytest.mark.parametrize("path", PROMPTS)
@pytest.mark.parametrize("tokens_a_step", [1, 3, 99])
@pytest.mark.parametrize(
    ("stop", "text", "num_tokens"),
    [
        ("E, F", " D, ", 8),
        ([", E", "E"], " D", 5),
        (["E", ", E"], " D", 5),
        (["never", "G", "x", "y"], " D, E, F, ", 11),
        ("H", " D, E, F, G", 12),
    ],
)
def test_the_text_ends_before_the_earliest_stop_string_whose_tokens_are_counted(
    path: str, stop: Any, text: str, num_tokens: int, tokens_a_step: int, stream: bool
) -> None:
    """A token a byte, the end token last."""
    api = Api(says(" D, E, F, G", tokens_a_step))
    assert answer(api, path, stream, stop=stop) == (text, "stop", num_tokens)
    api.check_at_rest()


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_no_event_has_any_of_a_stop_string(path: str) -> None:
    assert "".join(pieces(Api(one_by_one(" D, E, F, G")), path, stop=["E, F"])) == " D, "


@WAYS
def test_bos_comes_once_and_token_ids_stay_as_they_are(stream: bool) -> None:
    """The chat template writes BOS, the tokenizer adds it to plain prompts, and nobody does both."""
    reference = json.loads((BOS_TOKENIZER / "ref.json").read_text())
    api = Api(tokenizer=load_tokenizer(BOS_TOKENIZER))
    plain, ids = reference["plain_prompt"], [317, 314]
    for path, body, expected in (
        (CHAT, {"messages": reference["messages"]}, [1, 4, 317, 314, 3, 5]),
        (COMPLETIONS, {"prompt": plain}, [1, 317, 314]),
        (COMPLETIONS, {"prompt": ids}, ids),
        (COMPLETIONS, {"prompt": [ids]}, ids),
    ):
        options = {"max_tokens": 1, "stream": stream, "stream_options": USAGE if stream else None}
        made = (api.events(path, **body, **options) if stream else [api.whole(path, **body, **options)])[-1]
        assert api.link.requests[-1].input_ids.tolist() == expected
        assert made["usage"]["prompt_tokens"] == len(expected)
    for body, expected in (({"text": plain}, [1, 317, 314]), ({"input_ids": ids}, ids)):
        api.post(GENERATE, **body, stream=stream)
        assert api.link.requests[-1].input_ids.tolist() == expected
    assert api.whole("/tokenize", messages=reference["messages"])["tokens"] == [1, 4, 317, 314, 3, 5]


def with_template(template: str | None) -> Api:
    hf = make_tokenizer()
    hf.chat_template = template
    return Api(says("Hello"), tokenizer=Tokenizer(hf))


JOINING = "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}"
NO_SYSTEM = "{% if messages[1].role == 'system' %}{{ raise_exception('No system.') }}{% endif %}" + JOINING


@WAYS
@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([{"type": "text", "text": "Say"}, {"type": "text", "text": " hi"}], "Say hi"),
        ([{"type": "text", "text": ""}], ""),
        ([], ""),
        ("", ""),
        (" ", " "),
    ],
)
def test_parts_of_a_text_are_their_joined_text_though_the_template_can_only_join_strings(
    content: Any, text: str, stream: bool
) -> None:
    api = with_template(JOINING)
    assert api.post(CHAT, messages=[{"role": "user", "content": content}], stream=stream).status_code == 200
    assert api.link.requests[-1].input_ids.tolist() == ids_of(f"user: {text}\n")


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


@WAYS
@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "user", "content": [{"type": "text", "text": "See"}, IMAGE]}, "messages[1].content[1].type"),
        ({"role": "user", "content": [{"text": "Hi"}]}, "messages[1].content[0].type"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[1].content[0].text"),
        ({"role": "user", "content": None}, "messages[1].content"),
        ({"role": "user"}, "messages[1].content"),
        ({"role": "banana", "content": "Hi"}, "messages[1].role"),
    ],
)
def test_a_message_that_cannot_be_is_refused_by_its_number_and_the_next_is_answered(
    message: Any, param: str, stream: bool
) -> None:
    api = with_template(JOINING)
    error = api.error(400, CHAT, messages=[*HI, message], stream=stream)
    assert error["param"] == param
    assert "messages[1]" in error["message"]
    assert answer(api, CHAT, stream) == ("Hello", "stop", 6)


@WAYS
@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (NO_SYSTEM, "No system."),
        ("{{ messages[1].content + 1 }}", "can only concatenate str"),
        ("{% if %}", "Expected an expression"),
        (None, "no chat template"),
    ],
)
def test_a_chat_that_the_template_refuses_is_a_400_with_its_reason(
    template: str | None, reason: str, stream: bool
) -> None:
    api = with_template(template)
    messages = [*HI, {"role": "system", "content": "Be kind."}]
    for path in (CHAT, "/tokenize", "/cache/probe"):
        error = api.error(400, path, messages=messages, stream=stream)
        assert error["param"] == "messages"
        assert reason in error["message"]
    assert answer(api, COMPLETIONS, stream) == ("Hello", "stop", 6)
