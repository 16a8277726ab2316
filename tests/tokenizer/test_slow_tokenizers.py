"""Folders without tokenizer.json: what transformers converts, with which packages."""

from __future__ import annotations

import base64
import io
import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest
import sentencepiece

from minisgl.tokenizer import IncrementalDetokenizer, Tokenizer, end_token_ids, load_tokenizer
from minisgl.tokenizer import load as load_module

TEXTS = ["the quick brown fox", "hello world", "the cat sat on the mat", "1 2 3 4 5"] * 20
SAMPLES = ["hello world", "the  quick  fox é世", "12 cats\n sat", "", "🦀"]
LLAMA = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "tokenizer_class": "LlamaTokenizer"}


def train(**options: Any) -> bytes:
    """A small sentencepiece model with bytes to fall back to, as Llama's."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_writer=model,
        vocab_size=310,
        model_type="bpe",
        byte_fallback=True,
        split_digits=True,
        hard_vocab_limit=False,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        pad_id=-1,
        minloglevel=2,
        **options,
    )
    return model.getvalue()


MODEL = train(control_symbols=["<turn>"])


def make_folder(folder: Path, files: dict[str, bytes | str], config: dict[str, Any]) -> Path:
    for name, content in files.items():
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def llama(tmp_path: Path) -> Tokenizer:
    config = LLAMA | {
        "add_bos_token": True,
        "chat_template": "{% for m in messages %}{{ m.role + ': ' + m.content + '<turn>' }}{% endfor %}",
    }
    return load_tokenizer(make_folder(tmp_path, {"tokenizer.model": MODEL}, config))


@pytest.mark.parametrize("text", SAMPLES)
def test_a_sentencepiece_model_gives_sentencepiece_s_ids(llama: Tokenizer, text: str) -> None:
    expected = sentencepiece.SentencePieceProcessor(model_proto=MODEL).encode(text)
    assert llama.encode(text).tolist() == [1, *expected]
    assert llama.decode(llama.encode(text)) == text


def test_its_control_symbols_are_one_id_each_and_end_turns(llama: Tokenizer) -> None:
    turn = llama.backend.token_to_id("<turn>")
    assert llama.apply_chat_template([{"role": "user", "content": "hello"}])[-1] == turn
    assert end_token_ids(llama) == {2, turn}
    assert {0, 1, 2, turn} <= llama.special_ids


@pytest.mark.parametrize("seed", range(5))
def test_its_text_streams_as_it_is_decoded_whole(llama: Tokenizer, seed: int) -> None:
    ids = random.Random(seed).choices(range(llama.vocab_size), k=40)
    detokenizer = IncrementalDetokenizer(llama)
    assert "".join([*(detokenizer.push([i]) for i in ids), detokenizer.flush()]) == llama.decode(ids)


def test_a_vocabulary_with_merges_is_read_by_the_model_s_own_class(tmp_path: Path) -> None:
    byte_alphabet = {chr(code): i for i, code in enumerate(range(0x21, 0x7F))}
    vocab = byte_alphabet | {"he": 100, "Ġ": 101, "Ġhe": 102, "<|endoftext|>": 103, "Ċ": 104}
    files = {"vocab.json": json.dumps(vocab), "merges.txt": "#version: 0.2\nh e\nĠ he\n"}
    tokenizer = load_tokenizer(make_folder(tmp_path, files, {"tokenizer_class": "Qwen2Tokenizer"}))
    assert tokenizer.is_byte_level
    assert tokenizer.encode("he he<|endoftext|>").tolist() == [100, 102, 103]


def test_a_tiktoken_model_gives_tiktoken_s_ids(tmp_path: Path) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    ranks = {bytes([byte]): byte for byte in range(256)} | {b"he": 256, b"ll": 257, b"hell": 258, b" w": 259}
    lines = "".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items())
    tokenizer = load_tokenizer(make_folder(tmp_path, {"tokenizer.model": lines}, {"eos_token": "<|end|>"}))
    reference = tiktoken.Encoding("tiny", pat_str=r"\S+| \S+|\s", mergeable_ranks=ranks, special_tokens={})
    for text in ("hello", "hell hello", "é"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode("hello").tolist() == reference.encode("hello")


@pytest.mark.parametrize(
    ("content", "blocked", "named"),
    [
        (MODEL, "sentencepiece", "needs sentencepiece, or"),
        (MODEL, "google", "needs protobuf, or"),
        (b"IQ== 0\n", "tiktoken", "needs tiktoken, or"),
    ],
)
def test_a_missing_package_is_named_with_the_extra_that_has_it(
    content: bytes, blocked: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(name: str) -> object:
        if name.partition(".")[0] == blocked:
            raise ModuleNotFoundError(name)
        return sys

    monkeypatch.setattr(load_module, "find_spec", find)
    folder = make_folder(tmp_path, {"tokenizer.model": content}, LLAMA)
    with pytest.raises(ValueError, match=rf"tokenizer\.model {named}.*pip install 'minisgl\[slow-tokenizers\]'"):
        load_tokenizer(folder)


def test_a_damaged_model_is_refused_by_its_folder(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, {"tokenizer.model": MODEL[:1000]}, LLAMA)
    with pytest.raises(ValueError, match=f"the tokenizer in {tmp_path} cannot be converted"):
        load_tokenizer(folder)


def test_code_that_comes_with_a_model_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "tokenization_own.py").write_text("raise SystemExit('this was run')")
    config = {"tokenizer_class": "OwnTokenizer", "auto_map": {"AutoTokenizer": ["tokenization_own.OwnTokenizer", None]}}
    folder = make_folder(tmp_path, {"vocab.json": "{}"}, config)
    with pytest.raises(ValueError, match=f"the tokenizer in {tmp_path} cannot be converted"):
        load_tokenizer(folder)
