import copy
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tokenizers

from minisgl.tokenizer import Tokenizer, load_tokenizer


def test_encode_gives_int32_ids(tiny):
    ids = tiny.encode("hello hello")
    assert ids.dtype == np.int32
    assert tiny.decode(ids) == "hello hello"
    assert len(ids) == 2


def test_encode_of_nothing_is_empty_where_no_bos_is_added(tiny):
    ids = tiny.encode("")
    assert ids.shape == (0,)
    assert ids.dtype == np.int32


def test_bos_comes_once_before_a_plain_prompt(bos_tokenizer, bos_reference):
    assert bos_tokenizer.encode(bos_reference["plain_prompt"]).tolist() == bos_reference["plain_ids"]


def test_bos_comes_once_in_a_chat_whose_template_writes_it(bos_tokenizer, bos_reference):
    assert bos_tokenizer.apply_chat_template(bos_reference["messages"]).tolist() == bos_reference["chat_ids"]


def test_a_special_token_typed_in_the_text_is_one_id(tiny):
    assert tiny.encode("</s>hello").tolist()[0] == tiny.hf.eos_token_id
    assert len(tiny.encode("</s><note>")) == 2


def test_a_lone_surrogate_is_refused_with_its_place(tiny):
    with pytest.raises(ValueError, match=r"U\+D800 at character 2"):
        tiny.encode("ab\ud800")


def test_a_lone_surrogate_in_a_chat_is_refused(bos_tokenizer):
    with pytest.raises(ValueError, match=r"U\+DC00"):
        bos_tokenizer.apply_chat_template([{"role": "user", "content": "\udc00"}])


def test_nul_is_an_ordinary_character(tiny):
    assert tiny.decode(tiny.encode("a\0b")) == "a\0b"


def test_decode_leaves_special_tokens_out_unless_told(tiny):
    ids = [0, *tiny.encode("hello"), 2, 1]
    assert tiny.decode(ids) == "hello<note>"
    assert tiny.decode(ids, skip_special_tokens=False) == "<s>hello<note></s>"


def test_only_control_tokens_are_special(tiny):
    assert tiny.special_ids == {0, 1}


def test_ids_outside_the_vocabulary_have_no_text(tiny):
    assert tiny.decode([tiny.vocab_size, *tiny.encode("hello")]) == "hello"


def test_truncation_asked_for_by_a_user_does_not_stay_on(tiny):
    assert len(tiny.hf("abc", truncation=True, max_length=1).input_ids) == 1
    assert len(tiny.encode("abc")) == 3


def test_special_tokens_as_text_asked_for_by_a_user_does_not_stay_on(bos_tokenizer):
    before = bos_tokenizer.encode("<s>hello").tolist()
    assert bos_tokenizer.hf("<s>hello", split_special_tokens=True).input_ids != before
    assert bos_tokenizer.encode("<s>hello").tolist() == before


def test_many_threads_encode_at_once_also_after_a_user_left_truncation_on(tiny):
    """The backend refuses to be changed while it is in use."""
    tiny.hf("abc", truncation=True, max_length=1)
    wanted = tiny.encode("abc " * 1000).tolist()
    with ThreadPoolExecutor(4) as pool:
        results = [pool.submit(tiny.encode, "abc " * 1000) for _ in range(200)]
        assert all(result.result().tolist() == wanted for result in results)


def test_the_hugging_face_object_gives_the_same_ids(bos_tokenizer):
    assert bos_tokenizer.hf("hello world").input_ids == bos_tokenizer.encode("hello world").tolist()


@pytest.mark.parametrize("kind", ["tiny", "bos_tokenizer", "smollm2"])
def test_a_prefix_is_what_all_longer_texts_begin_with(kind, request):
    tokenizer = request.getfixturevalue(kind)
    for text in ("hello hel", "hello hello ", "hello, hello\n", "hello hello </s>", "hello 12"):
        prefix = tokenizer.encode_prefix(text).tolist()
        assert prefix
        for more in ("", "lo", " hello", "\n\n", "3", "'s", ", hello", "</s>"):
            assert tokenizer.encode(text + more).tolist()[: len(prefix)] == prefix, (text, more)


@pytest.mark.parametrize("method", ["encode", "encode_rendered", "encode_prefix", "encode_rendered_prefix"])
def test_others_go_on_while_a_long_text_is_encoded(tiny, method):
    text, num_looks = "abc, def. " * 60_000, 0
    with ThreadPoolExecutor(1) as pool:
        encoded = pool.submit(getattr(tiny, method), text)
        while not encoded.done():
            time.sleep(0.001)
            num_looks += 1
    assert len(encoded.result()) > 100_000
    assert num_looks > 20


def test_a_prefix_has_the_bos_of_a_prompt_but_not_in_a_chat(bos_tokenizer):
    bos = bos_tokenizer.hf.bos_token_id
    assert bos_tokenizer.encode_prefix("hello hello").tolist()[0] == bos
    assert bos not in bos_tokenizer.encode_rendered_prefix("hello hello").tolist()


@pytest.mark.parametrize("kind", ["tiny", "bos_tokenizer", "smollm2", "tiny_spm"])
def test_one_word_has_no_prefix(kind, request):
    for text in ("hello", ""):
        with pytest.raises(ValueError, match=r"one word.* longer text, or token ids"):
            request.getfixturevalue(kind).encode_prefix(text)


def test_a_lone_surrogate_has_no_prefix(tiny):
    with pytest.raises(ValueError, match=r"U\+D800"):
        tiny.encode_prefix("hello \ud800")


@pytest.mark.parametrize("kind", ["truncation", "padding", "special tokens as text"])
def test_what_a_training_script_saved_with_a_tokenizer_is_turned_off_once(tmp_path, bos_tokenizer, monkeypatch, kind):
    hf = copy.deepcopy(bos_tokenizer.hf)
    if kind == "truncation":
        hf.backend_tokenizer.enable_truncation(2)
    elif kind == "padding":
        hf.backend_tokenizer.enable_padding(length=64, pad_id=0, pad_token="<s>")
    else:
        hf.split_special_tokens = True
    hf.save_pretrained(tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    monkeypatch.setattr(tokenizers.Tokenizer, "from_str", lambda text: pytest.fail("it was copied"))
    text = "<s>hello hello hello"
    assert tokenizer.encode(text).tolist() == bos_tokenizer.encode(text).tolist()
    assert tokenizer.encode_rendered_prefix(text).tolist() == bos_tokenizer.encode_rendered_prefix(text).tolist()


def test_a_tokenizer_that_a_user_left_cutting_is_copied_once(bos_tokenizer, monkeypatch):
    tokenizer = Tokenizer(copy.deepcopy(bos_tokenizer.hf))
    ids = tokenizer.encode("hello hello").tolist()
    tokenizer.hf("hello", truncation=True, max_length=1)
    assert tokenizer.encode("hello hello").tolist() == ids
    monkeypatch.setattr(tokenizers.Tokenizer, "from_str", lambda text: pytest.fail("it was copied again"))
    assert tokenizer.encode("hello hello").tolist() == ids


def test_the_longest_token_is_counted_in_bytes(tiny, tiny_spm):
    assert tiny.longest_token == len("<note>")
    assert tiny_spm.longest_token == len("<0x00>") == len("▁▁".encode())
    assert Tokenizer(tiny_spm.hf).longest_token == 6
