from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minisgl.tokenizer import Tokenizer, text_around, text_pieces

TEXT = "a🦀b 世界 héllo 👩‍👩‍👧 end"


@pytest.fixture(params=["tiny", "tiny_spm", "bos_tokenizer"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    found: Tokenizer = request.getfixturevalue(request.param)
    return found


def test_pieces_joined_are_the_whole_text_wherever_it_is_cut(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(TEXT)
    whole = tokenizer.decode(ids.tolist(), skip_special_tokens=False)
    for cut in range(len(ids) + 1):
        pieces = text_pieces(tokenizer, ids, [cut, len(ids)])
        assert "".join(pieces) == whole
        assert "�" not in pieces[0] + pieces[1]


def test_a_character_of_several_tokens_is_in_the_later_piece(tiny: Tokenizer) -> None:
    ids = tiny.encode("a🦀b")
    assert len(ids) == 6
    for cut in (1, 2, 3, 4):
        assert text_pieces(tiny, ids, [cut, 6]) == ["a", "🦀b"]
    assert text_pieces(tiny, ids, [2, 3, 5, 6]) == ["a", "", "🦀", "b"]


def test_special_tokens_are_shown(bos_tokenizer: Tokenizer) -> None:
    ids = bos_tokenizer.encode("Hi")
    first, rest = text_pieces(bos_tokenizer, ids, [1, len(ids)])
    assert first == bos_tokenizer.backend.id_to_token(int(ids[0]))
    assert rest == "Hi"


def test_of_no_tokens_there_is_no_text(tiny: Tokenizer) -> None:
    assert text_pieces(tiny, np.empty(0, np.int32), []) == []
    assert text_around(tiny, [], 0, 8) == ("", "")


def test_what_stands_around_a_position_is_of_whole_characters(tiny: Tokenizer) -> None:
    ids = tiny.encode("ab🦀cd").tolist()
    shown = {at: text_around(tiny, ids, at, 3) for at in range(len(ids) + 1)}
    assert shown[2] == ("ab", "")  # three of the crab's four bytes
    assert shown[3] == ("ab", "🦀")
    assert shown[5] == ("", "🦀cd")
    assert shown[6] == ("🦀", "cd")
    assert shown[7] == ("🦀c", "d")


@settings(max_examples=100, deadline=None)
@given(text=st.text(max_size=20), reach=st.integers(0, 6))
def test_what_stands_around_a_position_is_a_part_of_the_text(tiny: Tokenizer, text: str, reach: int) -> None:
    ids = tiny.encode(text).tolist()
    for at in range(len(ids) + 1):
        before, after = text_around(tiny, ids, at, reach)
        assert before + after in text


def test_the_space_in_front_of_the_first_word_shown_stays(tiny_spm: Tokenizer) -> None:
    ids = tiny_spm.hf.convert_tokens_to_ids(["▁ab", "▁ab", "▁ab", "▁ab"])
    assert text_around(tiny_spm, ids, 2, 1) == (" ab", " ab")
