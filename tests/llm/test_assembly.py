"""What is wrong with a model's files is said with their place, and before any weight is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.ggml_metadata import byte_level_metadata
from support.gguf_variants import llama_variant
from support.imports import imported_by
from support.tiny_model import make_tiny_model

from minisgl import LLM
from minisgl.kernel import cpu_library
from minisgl.llm import assembly
from minisgl.utils import gguf_header


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny model, of whose weights none may be read."""

    def refuse(*_: object) -> None:
        raise AssertionError("weights were read")

    monkeypatch.setattr(assembly, "_load", refuse)
    return make_tiny_model(tmp_path / "model")


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    chat = {"tokenizer.chat_template": "{{ messages[0].content }}"}
    return llama_variant(tmp_path / "model.gguf", lambda _: "Q4_1", metadata=byte_level_metadata() | chat)


def change(file: Path, **content: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | content))


def test_a_config_that_cannot_be_is_named_by_its_folder(folder: Path):
    change(folder / "config.json", num_key_value_heads=3)
    with pytest.raises(ValueError, match=r"/model: num_kv_heads=3 does not divide num_qo_heads=4"):
        LLM(str(folder))


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_an_end_token_that_is_none_is_refused(name: str, folder: Path):
    change(folder / name, eos_token_id="x")
    with pytest.raises(ValueError, match=r"/model: eos_token_id='x'"):
        LLM(str(folder))


def test_the_header_of_a_gguf_file_is_read_once(gguf: Path, monkeypatch: pytest.MonkeyPatch):
    opened: list[Path] = []

    def opening(path: Path) -> Any:
        opened.append(path)
        return real(path)

    real = gguf_header.MappedFile
    monkeypatch.setattr(gguf_header, "MappedFile", opening)
    LLM(str(gguf), num_page_override=64).shutdown()
    assert opened == [gguf]


def test_the_c_kernels_are_there_before_the_first_request(gguf: Path):
    """To find or to compile them belongs to the start: else the first request would seem slow."""
    cpu_library.functions.cache_clear()
    with LLM(str(gguf), num_page_override=64):
        assert cpu_library.functions.cache_info().currsize == 1


def test_generating_from_a_gguf_file_imports_nothing_that_it_does_not_need(gguf: Path):
    """Each of these takes from a tenth of a second to several, and most of them tens of megabytes."""
    code = "from minisgl.cli import main; main(sys.argv[1:])"
    options = ["--num-pages", "64", "--max-tokens", "8", "--temperature", "0"]
    modules = imported_by(code, "generate", "--model", str(gguf), *options, "hello")
    assert {"torch", "tokenizers"} <= modules
    assert modules.isdisjoint({"transformers", "huggingface_hub", "gguf", "triton", "torch._dynamo", "torch._inductor"})
    assert modules.isdisjoint({"rich.console", "zmq", "uvicorn"})
