import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minisgl.tokenizer import TextDelta, TextStream


def stream(tokenizer, ids, size=1, **kwargs):
    """All the deltas of these ids, pushed `size` at a time, the last one final."""
    text_stream = TextStream(tokenizer, **kwargs)
    chunks = [ids[i : i + size] for i in range(0, len(ids), size)] or [[]]
    return [text_stream.push(chunk, final=i == len(chunks) - 1) for i, chunk in enumerate(chunks)]


def text_of(deltas):
    return "".join(delta.text for delta in deltas)


def ids_of(tokenizer, text):
    return tokenizer.encode(text).tolist()


@pytest.fixture
def alphabet(smollm2):
    """The ids of " D, E, F, G", as the model continues "The alphabet is A, B, C,": seven tokens."""
    ids = ids_of(smollm2, " D, E, F, G")
    assert len(ids) == 7
    return ids


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize(
    ("stop", "text", "num_tokens"),
    [
        (("E, F",), " D, ", 5),
        ((", E", "E"), " D", 3),
        (("E", ", E"), " D", 3),
        (("never", "G", "x", "y"), " D, E, F, ", 7),
        (("H",), " D, E, F, G", 7),
        ((), " D, E, F, G", 7),
    ],
)
def test_the_text_ends_before_the_stop_string_however_tokens_are_grouped(
    smollm2, alphabet, stop, text, num_tokens, size
):
    deltas = stream(smollm2, alphabet, size, stop=stop)
    assert text_of(deltas) == text
    assert deltas[-1].num_tokens == num_tokens
    assert deltas[-1].stopped == (text != " D, E, F, G")


def test_text_that_may_begin_a_stop_string_waits(tiny):
    deltas = stream(tiny, ids_of(tiny, "a-b--c"), stop=("--",))
    assert [delta.text for delta in deltas] == ["a", "", "-b", "", "", ""]
    assert [delta.stopped for delta in deltas] == [False] * 4 + [True] * 2


def test_the_last_push_gives_what_was_held_back(tiny):
    deltas = stream(tiny, ids_of(tiny, "a-"), stop=("--",))
    assert deltas[-1] == TextDelta("-", 2, False)


def test_a_final_push_without_tokens_gives_the_rest(tiny):
    text_stream = TextStream(tiny, stop=("--",))
    text_stream.push(ids_of(tiny, "a-"))
    assert text_stream.push((), final=True) == TextDelta("-", 2, False)


def test_tokens_after_the_stop_are_ignored(tiny):
    text_stream = TextStream(tiny, stop=("b",))
    assert text_stream.push(ids_of(tiny, "abc")) == TextDelta("a", 2, True)
    assert text_stream.push(ids_of(tiny, "d"), final=True) == TextDelta("", 2, True)


def test_a_stop_string_can_be_found_in_the_flushed_bytes(tiny_spm):
    cut = tiny_spm.hf.convert_tokens_to_ids(["▁ab", "<0x21>"])
    assert text_of(stream(tiny_spm, cut, stop=("b!",))) == "a"


@pytest.mark.parametrize(("min_tokens", "text"), [(0, "x"), (1, "x"), (2, "xbx"), (3, "xbx"), (4, "xbxb")])
def test_a_stop_string_within_the_first_min_tokens_does_not_count(tiny, min_tokens, text):
    deltas = stream(tiny, ids_of(tiny, "xbxb"), stop=("b",), min_tokens=min_tokens)
    assert text_of(deltas) == text
    assert deltas[-1].stopped == (min_tokens < 4)


def test_a_stop_string_that_ends_after_min_tokens_counts_wherever_it_begins(tiny):
    deltas = stream(tiny, ids_of(tiny, "xabc"), stop=("abc",), min_tokens=3)
    assert (text_of(deltas), deltas[-1].num_tokens) == ("x", 4)


def test_special_tokens_are_shown_when_asked_for(tiny):
    ids = [*ids_of(tiny, "hello"), tiny.hf.eos_token_id]
    assert text_of(stream(tiny, ids)) == "hello"
    assert text_of(stream(tiny, ids, skip_special_tokens=False)) == "hello</s>"


def test_a_hidden_special_token_counts_as_a_token(tiny):
    assert stream(tiny, [tiny.hf.eos_token_id, *ids_of(tiny, "ab")], stop=("a",))[-1].num_tokens == 2


@settings(max_examples=300, deadline=None)
@given(
    ids=st.lists(st.sampled_from([0, 68, 69, 70, 259, 260, 261, 262, 200, 201]), max_size=12),
    stop=st.lists(st.sampled_from(["a", "he", "ell", "lh", "hell", "eh", "�"]), max_size=3),
    min_tokens=st.integers(0, 4),
    size=st.integers(1, 5),
)
def test_grouping_changes_nothing_and_the_text_is_the_decoded_one_cut_short(tiny, ids, stop, min_tokens, size):
    single = stream(tiny, ids, 1, stop=stop, min_tokens=min_tokens)
    grouped = stream(tiny, ids, size, stop=stop, min_tokens=min_tokens)
    assert text_of(grouped) == text_of(single)
    assert grouped[-1].num_tokens == single[-1].num_tokens
    assert grouped[-1].stopped == single[-1].stopped
    whole = tiny.decode(ids)
    if single[-1].stopped:
        rest = whole[len(text_of(single)) :]
        assert whole.startswith(text_of(single))
        assert any(rest.startswith(s) for s in stop)
    else:
        assert text_of(single) == whole
