"""How to sample as a checkpoint's files advise."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest

from minisgl.core import SamplingParams
from minisgl.models.sampling_defaults import from_generation_config, from_gguf
from minisgl.utils.model_store import SMOLLM2

FILE = Path("generation_config.json")
QWEN3 = {"do_sample": True, "eos_token_id": [5, 6], "temperature": 0.6, "top_k": 20, "top_p": 0.95, "max_new_tokens": 9}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (QWEN3, {"temperature": 0.6, "top_k": 20, "top_p": 0.95}),
        ({"repetition_penalty": 1.05, "min_p": 0.1}, {"repetition_penalty": 1.05, "min_p": 0.1}),
        ({"temperature": None, "top_k": 0}, {"top_k": 0}),
        ({"_from_model_config": True, "transformers_version": "4.57.0"}, {}),
        ({}, {}),
    ],
)
def test_only_what_chooses_tokens_is_taken(content: dict[str, Any], expected: dict[str, float]) -> None:
    assert from_generation_config(FILE, content) == expected


def test_do_sample_false_is_greedy() -> None:
    advised = from_generation_config(FILE, {"do_sample": False, "temperature": 0.7, "top_p": 0.9})
    assert advised == {"temperature": 0.0, "top_p": 0.9}


def test_an_integer_stays_one() -> None:
    assert SamplingParams(**from_generation_config(FILE, {"top_k": 20})).top_k == 20


@pytest.mark.parametrize("wrong", [{"temperature": "hot"}, {"top_p": 1.5}, {"top_k": 2.5}, {"repetition_penalty": 0}])
def test_a_value_that_cannot_be_is_left_out_with_a_warning(
    wrong: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "minisgl"):
        assert from_generation_config(FILE, wrong | {"min_p": 0.05}) == {"min_p": 0.05}
    assert "generation_config.json: " + next(iter(wrong)) in caplog.text


def test_a_gguf_file_advises_under_names_of_its_own() -> None:
    metadata = {
        "general.sampling.temp": 0.6000000238418579,
        "general.sampling.top_k": 20,
        "general.sampling.top_p": 0.949999988079071,
        "general.sampling.min_p": 0.0,
        "general.sampling.penalty_repeat": 1.0,
        "general.sampling.mirostat": 2,
    }
    assert from_gguf(Path("a.gguf"), metadata) == {
        "temperature": 0.6,
        "top_k": 20,
        "top_p": 0.95,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
    }
    assert from_gguf(Path("a.gguf"), {"general.name": "a"}) == {}


def test_a_copy_of_the_default_model_has_its_card_s_advice_under_any_name(tmp_path: Path) -> None:
    file = tmp_path / "another-name.gguf"
    file.touch()
    os.truncate(file, SMOLLM2.num_bytes)
    named = {"general.name": SMOLLM2.name_in_file}
    advised = from_gguf(file, named)
    assert (advised["temperature"], advised["top_p"]) == (0.2, 0.9)
    assert advised == SMOLLM2.sampling
    assert from_gguf(file, named | {"general.sampling.temp": 0.5}) == {**SMOLLM2.sampling, "temperature": 0.5}
    assert from_gguf(file, {"general.name": "a fine-tune of it"}) == {}
    os.truncate(file, SMOLLM2.num_bytes - 1)
    assert from_gguf(file, named) == {}
