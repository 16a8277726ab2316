"""Tokenizers for these tests: two made here in a moment, one from a folder, and SmolLM2's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.ggml_metadata import byte_level_metadata, sentencepiece_metadata

from minisgl.tokenizer import Tokenizer, load_tokenizer
from minisgl.tokenizer.gguf_tokenizer import tokenizer_from_gguf
from minisgl.utils.model_store import ALIASES, resolve_model

DATA = Path(__file__).parents[1] / "data" / "tok"


@pytest.fixture(scope="session")
def tiny() -> Tokenizer:
    """Byte-level BPE; adds no BOS, has no chat template."""
    return Tokenizer(tokenizer_from_gguf(byte_level_metadata()))


@pytest.fixture(scope="session")
def tiny_spm() -> Tokenizer:
    """Sentencepiece BPE with byte fallback and a space before the text."""
    return Tokenizer(tokenizer_from_gguf(sentencepiece_metadata()))


@pytest.fixture(scope="session")
def bos_tokenizer() -> Tokenizer:
    """Adds BOS to plain prompts; its chat template writes BOS itself."""
    return load_tokenizer(DATA / "bos")


@pytest.fixture(scope="session")
def bos_reference() -> dict[str, Any]:
    """What transformers makes of `bos_tokenizer`: rendered, chat_ids, plain_ids, ..."""
    reference: dict[str, Any] = json.loads((DATA / "bos" / "ref.json").read_text())
    return reference


@pytest.fixture(scope="session")
def smollm2() -> Tokenizer:
    if not ALIASES["smollm2"].is_pulled:
        pytest.skip("SmolLM2 is not pulled")
    return load_tokenizer(resolve_model("smollm2"))
