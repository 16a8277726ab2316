import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minisgl.tokenizer import StopStrings


def run(stops, pieces, unarmed=0):
    """What each piece gives, the first `unarmed` ones not searched, and whether a stop string was found."""
    strings = StopStrings(stops)
    texts = []
    for i, piece in enumerate(pieces):
        texts.append(strings.push(piece, armed=i >= unarmed))
        if strings.stopped:
            return texts, True
    return [*texts, strings.flush()], False


@pytest.mark.parametrize(
    ("stops", "pieces", "texts", "stopped"),
    [
        ((), ["a", "b"], ["a", "b", ""], False),
        (["b"], ["a", "b", "c"], ["a", ""], True),
        (["E, F"], [" D", ",", " E", ",", " F"], [" D", ",", " ", "", ""], True),
        ([", E", "E"], [" D", ",", " E"], [" D", "", ""], True),
        (["E", ", E"], [" D, E, F"], [" D"], True),
        (["aab"], ["a", "a", "a", "b"], ["", "", "a", ""], True),
        (["abab", "ba"], ["ab", "x"], ["", "abx", ""], False),
        (["abcd", "bc"], ["abcd"], [""], True),
        (["abcd", "bc"], ["a", "b", "c"], ["", "", "a"], True),
        (["stop"], ["st", "o"], ["", "", "sto"], False),
        (["\n\n"], ["a\n", "b\n", "\nc"], ["a", "\nb", ""], True),
        (["🦀"], ["x🦀y"], ["x"], True),
    ],
)
def test_text_is_given_up_to_the_stop_string(stops, pieces, texts, stopped):
    assert run(stops, pieces) == (texts, stopped)


def test_a_stop_string_that_ends_unarmed_does_not_count():
    assert run(["ab"], ["ab", "c"], unarmed=1) == (["ab", "c", ""], False)


def test_a_stop_string_that_begins_unarmed_and_ends_armed_counts():
    assert run(["abc"], ["xab", "c"], unarmed=1) == (["x", ""], True)


def test_a_stop_string_is_found_behind_one_that_did_not_count():
    assert run(["aa"], ["aa", "a"], unarmed=1) == (["a", ""], True)


def first_match(stops, pieces):
    """By hand: after each piece, the earliest beginning of a stop string in all the text."""
    text = ""
    for piece in pieces:
        text += piece
        starts = [text.find(stop) for stop in stops if stop in text]
        if starts:
            return text[: min(starts)], True
    return text, False


AB = st.text("ab", min_size=1, max_size=4)


def test_what_a_stop_string_needs_is_made_once_for_all_texts():
    first, second = StopStrings(["abab"]), StopStrings(["abab"])
    assert first._automata[0]._borders is second._automata[0]._borders


@settings(max_examples=500, deadline=None)
@given(stops=st.lists(AB, max_size=3), pieces=st.lists(st.text("ab", max_size=3), max_size=8))
def test_joined_text_is_that_of_a_plain_search(stops, pieces):
    texts, stopped = run(stops, pieces)
    assert ("".join(texts), stopped) == first_match(stops, pieces)


@settings(max_examples=200, deadline=None)
@given(stops=st.lists(AB, min_size=1, max_size=3), pieces=st.lists(st.text("ab", max_size=3), max_size=8))
def test_no_more_is_held_back_than_could_begin_a_stop_string(stops, pieces):
    strings = StopStrings(stops)
    seen = given_out = ""
    for piece in pieces:
        seen += piece
        given_out += strings.push(piece, armed=True)
        if strings.stopped:
            return
        held = seen[len(given_out) :]
        assert held == "" or any(stop.startswith(held) for stop in stops)
