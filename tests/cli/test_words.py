"""How commands write numbers and causes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from minisgl.cli.words import CAUSE_COLORS, CAUSES, count, duration
from minisgl.core import CAUSES as ALL_CAUSES

PAGE = Path(__file__).parents[2] / "ui" / "src"


def test_commands_and_the_page_call_every_cause_by_the_same_name() -> None:
    sources = [path.read_text(encoding="utf-8") for path in PAGE.rglob("causes.ts")]
    (found,) = (text for text in sources if "CAUSE_TEXT:" in text)
    assert dict(re.findall(r'^  (\w+): { name: "(.*?)"', found, re.MULTILINE)) == CAUSES
    assert tuple(CAUSES) == ALL_CAUSES
    assert CAUSE_COLORS.keys() <= CAUSES.keys()


@pytest.mark.parametrize(
    ("number", "words", "text"),
    [
        (0, ("token",), "0 tokens"),
        (1, ("token",), "1 token"),
        (1024, ("batch", "batches"), "1,024 batches"),
        (1, ("batch", "batches"), "1 batch"),
    ],
)
def test_one_thing_is_not_many(number: int, words: tuple[str, ...], text: str) -> None:
    assert count(number, *words) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (139, "2 min 19 s"),
        (3599.7, "1 h 0 min"),
        (90000, "25 h 0 min"),
    ],
)
def test_the_longer_it_took_the_rougher_it_is_told(seconds: float, text: str) -> None:
    assert duration(seconds) == text
