"""How commands write numbers and causes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from minisgl.cli.words import CAUSE_COLORS, CAUSES, count
from minisgl.core import CAUSES as ALL_CAUSES

PAGE_CAUSES = Path(__file__).parents[2] / "ui" / "src" / "causes.ts"


def test_commands_and_the_page_call_every_cause_by_the_same_name() -> None:
    of_page = dict(re.findall(r'^  (\w+): { name: "(.*?)"', PAGE_CAUSES.read_text(encoding="utf-8"), re.MULTILINE))
    assert of_page == CAUSES
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
