"""Live servers on SmolLM2 for real clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.live_server import LiveServer, live_server

from minisgl.tokenizer.load import load_tokenizer
from minisgl.utils.model_store import resolve_model

FLAGS = ("--model", "smollm2", "--dtype", "float32", "--max-seq-len", "8192", "--num-pages", "12288")


@pytest.fixture(scope="session")
def server() -> Iterator[LiveServer]:
    with live_server(*FLAGS) as server:
        yield server


@pytest.fixture(scope="session")
def other_server() -> Iterator[LiveServer]:
    with live_server(*FLAGS) as server:
        yield server


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2's tokenizer as other programs read it."""
    folder = tmp_path_factory.mktemp("tokenizer")
    load_tokenizer(resolve_model("smollm2")).hf.save_pretrained(folder)
    return folder
