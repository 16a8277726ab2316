"""What is wrong with a model's files is said with their place, and before any weight is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.tiny_model import make_tiny_model

from minisgl import LLM
from minisgl.llm import assembly


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny model, of whose weights none may be read."""

    def refuse(*_: object) -> None:
        raise AssertionError("weights were read")

    monkeypatch.setattr(assembly, "_load", refuse)
    return make_tiny_model(tmp_path / "model")


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
