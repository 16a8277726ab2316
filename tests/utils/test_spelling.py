"""Which name was meant."""

from __future__ import annotations

import pytest

from minisgl.utils.spelling import likely, nearest, num_edits

NAMES = ["temperature", "max_tokens", "min_tokens", "stop", "top_p", "top_k", "n", "rid", "model", "stream"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("temprature", "temperature"),
        ("temperture", "temperature"),
        ("tempratur", "temperature"),
        ("tmperatuer", "temperature"),
        ("max_token", "max_tokens"),
        ("max_tokesn", "max_tokens"),
        ("maxTokens", "max_tokens"),
        ("Temperature", "temperature"),
        ("stpo", "stop"),
        ("stops", "stop"),
        ("top-p", "top_p"),
        ("steram", "stream"),
    ],
)
def test_a_slip_of_the_pen_is_known(name: str, meant: str) -> None:
    assert likely(name, NAMES) == meant


@pytest.mark.parametrize(
    "name", ["", "id", "m", "nn", "ride", "foo", "to", "stream_options", "max_new_tokens", "temp", *NAMES]
)
def test_another_name_is_none(name: str) -> None:
    assert likely(name, NAMES) is None


def test_the_fewest_edits_win() -> None:
    assert likely("mix_tokens", ["max_tokens", "min_tokens"]) == "max_tokens"
    assert likely("minn_tokens", ["max_tokens", "min_tokens"]) == "min_tokens"


def test_a_hint_may_be_farther_off() -> None:
    assert nearest("enable_think", ["enable_thinking", "tools"]) == "enable_thinking"
    assert nearest("zzz", ["enable_thinking", "tools"]) is None
    assert nearest("x", []) is None


@pytest.mark.parametrize(
    ("a", "b", "edits"), [("", "", 0), ("", "ab", 2), ("kitten", "sitting", 3), ("ab", "ba", 1), ("abc", "ca", 3)]
)
def test_edits_are_counted_as_far_as_asked(a: str, b: str, edits: int) -> None:
    assert num_edits(a, b, 9) == num_edits(b, a, 9) == edits
    assert num_edits(a, b, 1) == min(edits, 2)
