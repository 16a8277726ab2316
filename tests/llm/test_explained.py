"""An explanation beside the prompt's text."""

from __future__ import annotations

import pytest
from support.tiny_model import make_tokenizer

from minisgl.core import CAUSES, Explanation
from minisgl.llm.explained import IN_ORDER, Around, Explained
from minisgl.tokenizer import Tokenizer

TOKENIZER = Tokenizer(make_tokenizer())  # one token a byte
TEXT = "You are helpful. It is 12:07 now 🦀."


def of(text: str = TEXT, branch: tuple[int, ...] = (), **numbers: int) -> Explained:
    return Explained(TOKENIZER.encode(text), Explanation(**numbers, branch=branch))  # type: ignore[arg-type]


def ids(text: str) -> tuple[int, ...]:
    return tuple(TOKENIZER.encode(text).tolist())


def test_every_cause_has_its_place_in_a_prompt() -> None:
    assert sorted(IN_ORDER) == sorted(CAUSES)


def test_segments_stand_in_the_prompts_order_and_none_is_empty() -> None:
    segments = of(hit=16, never_seen=19, last_token=3).segments(TOKENIZER)
    assert segments == [
        ("hit", 16, "You are helpful."),
        ("never_seen", 19, " It is 12:07 now "),
        ("last_token", 3, "🦀."),
    ]


@pytest.mark.parametrize("hit", range(1, 38))
def test_segments_joined_are_the_prompt_though_one_ends_within_a_character(hit: int) -> None:
    segments = of(hit=hit, never_seen=37 - hit, last_token=1).segments(TOKENIZER)
    assert "".join(text for _, _, text in segments) == TEXT
    assert not any("�" in text for _, _, text in segments)
    assert sum(tokens for _, tokens, _ in segments) == len(TOKENIZER.encode(TEXT))


def test_around_is_what_stands_where_the_prompt_left_the_other() -> None:
    assert of(left_at=26).around(TOKENIZER) == Around("t is 12:", "07 now ")
    assert of(left_at=26, branch=ids("31 then")).around(TOKENIZER) == Around("t is 12:", "07 now ", "31 then")
    assert of(left_at=0).around(TOKENIZER) == Around("", "You are ")


def test_a_prompt_that_left_nothing_has_nothing_around() -> None:
    assert of(left_at=len(TOKENIZER.encode(TEXT))).around(TOKENIZER) is None


def test_a_branch_that_differs_within_a_character_is_shown_from_its_beginning() -> None:
    """The crab and the lion have their first three bytes in common."""
    at = len(ids("A 🦀")) - 1
    assert of("A 🦀.", left_at=at, branch=ids("A 🦁!")[at:]).around(TOKENIZER) == Around("A ", "🦀.", "🦁!")
