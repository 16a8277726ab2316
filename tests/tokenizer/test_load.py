import json
from pathlib import Path

import pytest
from support.chat_templates import make_tokenizer
from support.ggml_metadata import byte_level_metadata
from support.gguf_variants import llama_variant

from minisgl.tokenizer import load_tokenizer


def test_a_folder_gives_its_tokenizer_with_ids_of_its_special_tokens(bos_tokenizer):
    assert (bos_tokenizer.hf.bos_token_id, bos_tokenizer.hf.eos_token_id) == (1, 2)
    assert bos_tokenizer.vocab_size == 321


def test_a_folder_without_tokenizer_json_is_refused_by_name(tmp_path: Path):
    with pytest.raises(ValueError, match=r"neither a \.gguf file nor a folder that holds tokenizer\.json"):
        load_tokenizer(tmp_path)


def test_a_path_that_does_not_exist_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match=r"nowhere\.gguf"):
        load_tokenizer(tmp_path / "nowhere.gguf")


def test_a_folder_with_one_gguf_file_gives_that_files_tokenizer(tmp_path: Path, tiny):
    llama_variant(tmp_path / "tiny.gguf", metadata=byte_level_metadata())
    assert load_tokenizer(tmp_path).encode("hello").tolist() == tiny.encode("hello").tolist()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "rwkv"}, r"tokenizer\.ggml\.model='rwkv'"),
        ({"eos_token_id": 999}, r"tokenizer\.ggml\.eos_token_id=999 is outside"),
        ({"token_type": [1, 1]}, r"tokenizer\.ggml\.token_type has 2 entries for 265 tokens"),
        ({"scores": [1.0]}, r"tokenizer\.ggml\.scores has 1 entries for 265 tokens"),
    ],
)
def test_what_is_wrong_in_a_gguf_file_is_said_with_its_name(tmp_path: Path, changes, message):
    llama_variant(tmp_path / "odd.gguf", metadata=byte_level_metadata(**changes))
    with pytest.raises(ValueError, match=rf"odd\.gguf: .*{message}"):
        load_tokenizer(tmp_path / "odd.gguf")


def test_a_damaged_tokenizer_json_is_refused_by_its_folder(tmp_path: Path):
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0", "model": {}}')
    with pytest.raises(ValueError, match=rf"the tokenizer in {tmp_path} cannot be read"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"])
@pytest.mark.parametrize("content", ["", "[]", "null", '{"version": "1.0", "model": '])
def test_a_file_of_a_tokenizer_that_is_no_json_object_is_named(name: str, content: str, tmp_path: Path):
    make_tokenizer(None, ("<s>", "</s>")).hf.save_pretrained(tmp_path)
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=rf"/{name} .*JSON"):
        load_tokenizer(tmp_path)


CHAT = [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("chat_template.jinja", "file: {{ messages[0].content }}"),
        ("tokenizer_config.json", json.dumps({"chat_template": "file: {{ messages[0].content }}"})),
        (
            "tokenizer_config.json",
            json.dumps(
                {
                    "chat_template": [
                        {"name": "tool_use", "template": "tools"},
                        {"name": "default", "template": "file: {{ messages[0].content }}"},
                    ]
                }
            ),
        ),
    ],
)
def test_the_chat_template_is_found_wherever_the_folder_has_it(name: str, content: str, tmp_path: Path):
    make_tokenizer("config: {{ messages[0].content }}", ("<s>", "</s>")).hf.backend_tokenizer.save(
        str(tmp_path / "tokenizer.json")
    )
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "overruled"}))
    (tmp_path / name).write_text(content)
    assert load_tokenizer(tmp_path).render(CHAT) == "file: hello"
