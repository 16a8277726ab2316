from pathlib import Path

import pytest

from minisgl.tokenizer import load_tokenizer


def test_a_folder_gives_its_tokenizer_with_ids_of_its_special_tokens(bos_tokenizer):
    assert (bos_tokenizer.bos_token_id, bos_tokenizer.eos_token_id) == (1, 2)
    assert bos_tokenizer.vocab_size == 321


def test_a_folder_without_tokenizer_json_is_refused_by_name(tmp_path: Path):
    with pytest.raises(ValueError, match=r"neither a \.gguf file nor a folder that holds tokenizer\.json"):
        load_tokenizer(tmp_path)


def test_a_path_that_does_not_exist_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match=r"nowhere\.gguf"):
        load_tokenizer(tmp_path / "nowhere.gguf")


def test_a_damaged_tokenizer_json_is_refused_by_its_folder(tmp_path: Path):
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0", "model": ')
    with pytest.raises(ValueError, match=rf"the tokenizer in {tmp_path} cannot be read"):
        load_tokenizer(tmp_path)
