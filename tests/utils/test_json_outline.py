"""A JSON text's outline is exact however the text is cut into slices, and what is over a bound is never decoded."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from typing import Any

import pytest
from support.asgi import CHAT, COMPLETIONS, GENERATE, HI, Api, says

from minisgl.core import Limits
from minisgl.server.endpoints import common
from minisgl.server.errors import ApiError
from minisgl.server.schema.chat import ChatRequest
from minisgl.utils import json_outline
from minisgl.utils.json_outline import (
    CHEAP,
    MAX_EXPONENTS,
    MAX_FRACTIONS,
    MAX_PARTS,
    MAX_VALUES,
    Outline,
    TextsCheck,
    is_cheap,
)

STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
TEXTS = [
    "",
    "a",
    "a,b",
    '"',
    "\\",
    '\\"',
    '\\\\"',
    "[1,2]",
    "{",
    "é世😀",
    "1e5",
    "a.b",
    "\n",
    '"' * 5,
    "\\" * 7,
    "9" * 300,
]
NUMBERS = [0, 7, 12345, -1, 1.5, 1e-07, 1.5e300, True, False, None]


def plain(text: str) -> Outline:
    """The same by other means, but for long numbers; of a text that is well formed."""
    bare = STRING.sub('"', text)
    opens = bare.count("[") + bare.count("{")
    lists = [(len(each), key) for key, each in json.loads(text).items() if isinstance(each, list)]
    lists = [(num, key) for num, key in lists if num > 1 and not any_nested(json.loads(text)[key])]
    longest = max((num for num, _ in lists), default=0)
    field = next((key for num, key in lists if num == longest), "")
    exponents = len(re.findall(r"[0-9][eE]", bare))
    return Outline(bare.count(",") + opens, bare.count('"') + opens, bare.count("."), exponents, False, longest, field)


def any_nested(values: list[Any]) -> bool:
    return any(isinstance(value, str | list | dict) for value in values)


def draw(chance: random.Random, depth: int = 0) -> Any:
    kind = chance.randrange(6 if depth < 4 else 3)
    if kind == 0:
        return "".join(chance.choices(TEXTS, k=chance.randrange(4)))
    if kind < 3:
        return chance.choice(NUMBERS)
    if kind == 3:
        return {f"{chance.choice(TEXTS)}{i}": draw(chance, depth + 1) for i in range(chance.randrange(4))}
    if kind == 4:
        return chance.choices(NUMBERS, k=chance.randrange(12))
    return [draw(chance, depth + 1) for _ in range(chance.randrange(5))]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 2**18])
def test_an_outline_is_what_the_text_holds_in_slices_of_any_size(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_outline, "_SLICE", size)
    chance = random.Random(size)
    for _ in range(150):
        value = {f"k{i}": draw(chance) for i in range(chance.randrange(6))}
        text = json.dumps(value, ensure_ascii=chance.random() < 0.5, indent=chance.choice([None, 1]))
        found, expected = Outline.of(text.encode()), plain(text)
        assert replace(found, field="", longest=0) == replace(expected, field="", longest=0), text
        # A list that holds a text or another list begins with numbers perhaps: as many as there are count.
        assert found.longest >= expected.longest, text
        if found.longest == expected.longest:
            assert found.field == expected.field, text


def test_only_lists_that_are_fields_of_the_whole_are_named() -> None:
    assert (found := Outline.of(b'{"metadata": {"prompt": [1,2,3,4,5]}, "prompt" :\n [1,2,3]}')).field == "prompt"
    assert found.longest == 3
    assert Outline.of(b"[1,2,3]").longest == 0


def test_a_number_of_hundreds_of_digits_is_noticed_outside_strings_only() -> None:
    long = b"9" * 255
    assert Outline.of(b'{"a": %b}' % long).has_long_number
    assert not Outline.of(b'{"a": "%b"}' % long).has_long_number
    assert not Outline.of(b'{"a": %b}' % (b"9" * 127)).has_long_number


def test_numbers_that_the_decoder_takes_long_for_are_not_cheap_in_a_small_body() -> None:
    assert is_cheap(b'{"a": [%b1]}' % (b"12345," * 9000))
    assert not is_cheap(b'{"a": [%b1]}' % (b"1e300," * 9000))
    assert not is_cheap(b" " * (CHEAP + 1))


OVER = {
    "values": (b'{"metadata":[%b1]%%b}' % (b"1," * MAX_VALUES), "metadata"),
    "token ids": (b'{"tokens":[%b1]%%b}' % (b"1," * MAX_VALUES), "tokens"),
    "keys": (b'{%b"a":1%%b}' % b"".join(b'"%d":1,' % i for i in range(MAX_PARTS)), None),
    "lists": (b'{"prompt":[%b[1]]%%b}' % (b"[1]," * MAX_PARTS), None),
    "texts": (b'{"stop":[%b"a"]%%b}' % (b'"a",' * MAX_PARTS), None),
    "objects": (b'{"messages":[%b{}]%%b}' % (b"{}," * MAX_PARTS), None),
    "open lists": (b'{"a":' + b"[" * (MAX_PARTS + 1) + b"%b", None),
    "fractions": (b'{"metadata":[%b1]%%b}' % (b"1.5," * (MAX_FRACTIONS + 1)), "metadata"),
    "exponents": (b'{"metadata":[%b1]%%b}' % (b"1e300," * (MAX_EXPONENTS + 1)), "metadata"),
    "digits": (b'{"metadata":[%b1]%%b}' % ((b"9" * 4000 + b",") * 20), "metadata"),
}


@pytest.mark.parametrize("path", [CHAT, "/detokenize", "/cache/probe"])
@pytest.mark.parametrize(("body", "param"), OVER.values(), ids=OVER)
def test_what_is_over_a_bound_is_refused_and_never_decoded(
    path: str, body: bytes, param: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "decode", None)
    error = Api(says("Hello")).check_error(400, Api(says("Hello")).post_raw(path, body % b""))
    code = None if (path, param) == ("/detokenize", "tokens") else "request_too_large"  # it has a bound of its own
    assert (error["code"], error["param"]) == (code, param)


@pytest.mark.parametrize(
    ("path", "field"),
    [(COMPLETIONS, "prompt"), (GENERATE, "input_ids"), ("/cache/probe", "input_ids"), ("/cache/purge", "input_ids")],
)
@pytest.mark.parametrize("num", [50_000, 2 * MAX_VALUES])
def test_more_token_ids_than_the_context_has_are_refused_by_their_number(
    path: str, field: str, num: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "decode", None)
    raw = b'{"temperature": 0, "%b": [%b1]}' % (field.encode(), b"1," * (num - 1))
    api = Api(says("Hello"), limits=Limits(258, 1000, 4000))
    error = api.check_error(400, api.post_raw(path, raw))
    assert (error["code"], error["param"]) == ("context_length_exceeded", field)
    assert f"{num} tokens" in error["message"]


def test_a_body_at_all_bounds_is_read() -> None:
    ids = b"[%b1]" % (b"1," * (MAX_VALUES // 4 - 10))
    keys = b",".join(b'"%d":1' % i for i in range(MAX_PARTS // 4))
    fractions = b"[%b1]" % (b"1.5e-7," * MAX_EXPONENTS)
    raw = b'{"prompt":"Hi","max_tokens":1,"metadata":{%b},"store":%b,"user":%b}' % (keys, ids, fractions)
    Outline.of(raw).check()
    assert Api(says("Hello")).post_raw(COMPLETIONS, raw).status_code == 200


def test_a_large_prompt_of_allowed_length_is_read() -> None:
    api = Api(says("Hello"), limits=Limits(258, 100_000, 400_000))
    answer = api.whole(COMPLETIONS, prompt=[[1] * 40_000] * 3, max_tokens=1)
    assert answer["usage"]["prompt_tokens"] == 120_000


@pytest.mark.parametrize(
    "arguments", ["[" * 200_000, '{"a":[%s1]}' % ("1e300," * 12_000), '{"a":[%s1]}' % ("[1]," * MAX_PARTS)]
)
def test_json_in_the_arguments_of_a_call_is_bounded_too(arguments: str) -> None:
    calls = [{"function": {"name": "f", "arguments": arguments}}]
    api = Api(says("Hello"))
    error = api.error(400, CHAT, messages=[{"role": "assistant", "tool_calls": calls}, *HI])
    assert error["param"] == "messages[0].tool_calls[0].function.arguments"


@pytest.mark.parametrize("arguments", ['{"a":[%s1]}' % ("1e300," * 100), '{"a":[%s1]}' % ("[1]," * 2000)])
def test_json_in_the_arguments_of_all_calls_together_is_bounded_as_that_of_one(arguments: str) -> None:
    calls = [{"function": {"name": "f", "arguments": arguments}}] * 100
    api = Api(says("Hello"))
    error = api.error(400, CHAT, messages=[{"role": "assistant", "tool_calls": calls}, *HI])
    assert re.fullmatch(r"messages\[0\]\.tool_calls\[\d\d\]\.function\.arguments", error["param"])
    api.whole(CHAT, messages=[{"role": "assistant", "tool_calls": calls[:10]}, *HI], max_tokens=1)


def test_of_many_texts_only_what_is_outside_strings_counts() -> None:
    check = TextsCheck()
    for _ in range(100):
        check.add(b'{"a":"%b"}' % (b"1e5[," * 2000))


def test_a_long_value_is_not_quoted_whole() -> None:
    with pytest.raises(ApiError) as error:
        common.decode(b'{"messages":[{"role":"%b"}]}' % (b"x" * 1_000_000), ChatRequest)
    assert error.value.param == "messages[0].role"
    assert len(error.value.message) < 2000
