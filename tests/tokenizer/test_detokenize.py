from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.ggml_metadata import sentencepiece_metadata
from tokenizers import decoders

from minisgl.tokenizer import IncrementalDetokenizer, Tokenizer
from minisgl.tokenizer.gguf_tokenizer import tokenizer_from_gguf

CASES = {
    "🦀": [10813, 116, 218],
    "ď": [143, 233],
    "한글": [33085, 246, 181, 133, 218],
    "世界": [7906, 240, 178, 239, 230],
}


def pieces(tokenizer: Tokenizer, ids: Iterable[int], skip: bool = True) -> list[str]:
    """What each id gives when it is pushed alone, and last what the flush gives."""
    detokenizer = IncrementalDetokenizer(tokenizer, skip)
    return [*(detokenizer.push((i,)) for i in ids), detokenizer.flush()]


def chunked(tokenizer: Tokenizer, chunks: list[list[int]], skip: bool) -> str:
    detokenizer = IncrementalDetokenizer(tokenizer, skip)
    return "".join(detokenizer.push(chunk) for chunk in chunks) + detokenizer.flush()


def bytes_of(tokenizer: Tokenizer, text: str) -> list[int]:
    """The text in single bytes of a vocabulary with byte tokens."""
    return [tokenizer.hf.convert_tokens_to_ids(f"<0x{byte:02X}>") for byte in text.encode()]


def chunk_lists(num_ids: int):
    return st.lists(st.lists(st.integers(0, num_ids - 1), max_size=4), max_size=12)


@pytest.mark.slow
@pytest.mark.parametrize(("text", "ids"), CASES.items())
def test_a_character_of_several_tokens_comes_whole_and_once(smollm2, text, ids):
    got = pieces(smollm2, ids)
    assert "".join(got) == text
    assert set("".join(got[:-1])) == set(text)
    assert got[0] == ""
    assert got[-1] == ""


def test_a_cut_off_character_becomes_one_replacement_at_the_flush(tiny):
    got = pieces(tiny, tiny.encode("a🦀")[:-1])
    assert got == ["a", "", "", "", "�"]


def test_bytes_that_are_no_utf_8_are_replaced_when_it_is_known(tiny):
    crab = tiny.encode("🦀").tolist()
    assert pieces(tiny, [*crab[:2], *tiny.encode("x")]) == ["", "", "�x", ""]


@settings(max_examples=300, deadline=None)
@given(chunks=chunk_lists(265), skip=st.booleans())
def test_joined_pieces_are_the_decoded_whole(tiny, chunks, skip):
    whole = tiny.decode([i for chunk in chunks for i in chunk], skip)
    assert chunked(tiny, chunks, skip) == whole


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(chunks=chunk_lists(49_160), skip=st.booleans())
def test_joined_pieces_are_the_decoded_whole_for_smollm2(smollm2, chunks, skip):
    assert chunked(smollm2, chunks, skip) == smollm2.decode([i for chunk in chunks for i in chunk], skip)


# Ids 0 to 2 are special, 3 to 258 are bytes, the rest words; the same for the sentencepiece tests below.
MIXED = st.one_of(st.integers(259, 272), st.sampled_from([0, 2, 3 + 0x41, 3 + 0xE4, 3 + 0xB8, 3 + 0x96, 3 + 0xFF]))


@settings(max_examples=300, deadline=None)
@given(chunks=st.lists(st.lists(MIXED, max_size=4), max_size=12), skip=st.booleans())
def test_joined_pieces_are_the_decoded_whole_for_sentencepiece(tiny_spm, chunks, skip):
    whole = tiny_spm.decode([i for chunk in chunks for i in chunk], skip)
    assert chunked(tiny_spm, chunks, skip) == whole


@pytest.mark.parametrize("decoder", [decoders.Metaspace(), decoders.WordPiece("b"), decoders.BPEDecoder("c"), None])
@settings(max_examples=50, deadline=None)
@given(ids=st.lists(st.integers(259, 272), max_size=12))
def test_joined_pieces_are_the_decoded_whole_for_other_decoders(decoder, ids):
    tokenizer = _with_decoder(decoder)
    assert chunked(tokenizer, [[i] for i in ids], skip=True) == tokenizer.decode(ids)


def _with_decoder(decoder) -> Tokenizer:
    hf = tokenizer_from_gguf(sentencepiece_metadata())
    hf.backend_tokenizer.decoder = decoder
    return Tokenizer(hf)


def test_only_the_space_before_the_whole_text_is_dropped(tiny_spm):
    ids = tiny_spm.encode(" ab ab").tolist()
    assert "".join(pieces(tiny_spm, ids)) == " ab ab"
    assert pieces(tiny_spm, tiny_spm.hf.convert_tokens_to_ids(["▁ab", "▁ab"])) == ["ab", " ab", ""]


def test_a_hidden_token_before_a_word_does_not_eat_its_space(tiny_spm):
    ids = tiny_spm.hf.convert_tokens_to_ids(["▁ab", "</s>", "▁ab"])
    assert pieces(tiny_spm, ids) == ["ab", "", " ab", ""]


def test_a_run_of_byte_tokens_comes_when_it_has_ended(tiny_spm):
    word = tiny_spm.hf.convert_tokens_to_ids(["ab"])
    got = pieces(tiny_spm, [*word, *bytes_of(tiny_spm, "世"), *word])
    assert got == ["ab", "", "", "", "世ab", ""]


def test_one_bad_byte_spoils_its_run_as_in_the_decoded_whole(tiny_spm):
    bad = [*bytes_of(tiny_spm, "世"), 3 + 0xFF]
    assert "".join(pieces(tiny_spm, bad)) == tiny_spm.decode(bad) == "����"


@pytest.mark.parametrize("kind", ["tiny", "tiny_spm"])
def test_a_second_flush_gives_nothing(kind, request):
    tokenizer = request.getfixturevalue(kind)
    detokenizer = IncrementalDetokenizer(tokenizer)
    detokenizer.push(tokenizer.encode("a世")[:-1])
    assert detokenizer.flush() != ""
    assert detokenizer.flush() == ""


def test_the_window_stays_small_over_a_long_text(tiny_spm, monkeypatch):
    detokenizer = IncrementalDetokenizer(tiny_spm)
    decoded = []

    class Counting:
        def id_to_token(self, token_id):
            return tiny_spm.backend.id_to_token(token_id)

        def decode(self, ids, skip_special_tokens):
            decoded.append(len(ids))
            return tiny_spm.backend.decode(ids, skip_special_tokens=skip_special_tokens)

    monkeypatch.setattr(detokenizer._decoder, "_backend", Counting())
    for _ in range(500):
        detokenizer.push(tiny_spm.hf.convert_tokens_to_ids(["▁ab"]))
    assert max(decoded) <= 2


@settings(max_examples=200, deadline=None)
@given(prompt=st.lists(st.integers(0, 269), max_size=8), chunks=st.lists(st.lists(st.integers(259, 269)), max_size=6))
def test_an_answer_is_what_its_tokens_add_to_the_text_of_the_prompt(tiny_spm, prompt, chunks):
    prompt = [*prompt, 259 + 5]  # a word, so that no character is cut in two
    ids = [i for chunk in chunks for i in chunk]
    context = tiny_spm.context(np.array(prompt, np.int32))
    detokenizer = IncrementalDetokenizer(tiny_spm, context=context)
    text = "".join([*map(detokenizer.push, chunks), detokenizer.flush()])
    assert tiny_spm.decode(prompt) + text == tiny_spm.decode([*prompt, *ids])
    assert tiny_spm.decode_behind(context, ids) == text


def test_a_hidden_token_at_the_end_of_a_prompt_is_no_context(tiny_spm):
    word, space, end = tiny_spm.hf.convert_tokens_to_ids(["▁ab", "▁", "</s>"])
    assert tiny_spm.context(np.array([word, end, end], np.int32)) == [word]
    assert tiny_spm.context(np.array([word, end], np.int32), skip_special_tokens=False) == [end]
    assert tiny_spm.context(np.array([end], np.int32)) == []
    assert tiny_spm.decode_behind([space], [word]) == " ab"


def test_an_answer_completes_a_character_that_the_prompt_began(tiny_spm):
    first, second, third = bytes_of(tiny_spm, "世")
    context = tiny_spm.context(np.array([264, first, second], np.int32))
    assert context == [264, first, second]
    detokenizer = IncrementalDetokenizer(tiny_spm, context=context)
    assert detokenizer.push([third]) + detokenizer.push([264]) + detokenizer.flush() == "世 ab"[0:1] + "ab"


def test_byte_level_tokenizers_need_no_context(tiny):
    assert tiny.context(tiny.encode("hello hello")) == []
