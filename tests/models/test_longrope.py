"""longrope has factors for texts within the original context and others for longer ones: which of them a text takes."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from support.dense_models import LONGROPE, SHAPE, make_dense_model, save_dense_model
from transformers import Phi3Config

from minisgl import LLM, SamplingParams

ORIGINAL = 64
CONFIG = Phi3Config(**SHAPE, original_max_position_embeddings=ORIGINAL, rope_parameters=LONGROPE)
IDS = torch.randint(0, 256, (ORIGINAL + 20,), generator=torch.Generator().manual_seed(1)).tolist()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_dense_model(CONFIG, tmp_path_factory.mktemp("longrope"))


def generate(folder: Path, prompt: list[int], max_seq_len: int | None) -> list[int]:
    with LLM(str(folder), dtype="float32", num_page_override=256, max_seq_len_override=max_seq_len) as llm:
        ids: list[int] = llm.generate(prompt, SamplingParams(max_tokens=16, ignore_eos=True))[0]["token_ids"]
        return ids


@torch.inference_mode()
def by_transformers(prompt: list[int], text: list[int]) -> list[int]:
    """The most likely token at each place of the text, all of which is read at once and so with the same factors."""
    logits = make_dense_model(CONFIG)(torch.tensor([prompt + text[:-1]]), use_cache=False).logits[0]
    tokens: list[int] = logits[len(prompt) - 1 :].argmax(-1).tolist()
    return tokens


def test_an_engine_for_the_original_context_gives_short_texts_their_own_factors(
    folder: Path, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.WARNING, "minisgl"):
        text = generate(folder, IDS[:40], ORIGINAL)
    assert text == by_transformers(IDS[:40], text)
    assert "rotary factors" not in caplog.text


def test_an_engine_for_more_gives_all_texts_the_factors_of_long_ones_and_says_so(
    folder: Path, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.WARNING, "minisgl"):
        long, short = generate(folder, IDS, None), generate(folder, IDS[:40], None)
    assert long == by_transformers(IDS, long)
    assert short != by_transformers(IDS[:40], short)
    assert "factors for those over 64 tokens; max_seq_len_override=64" in caplog.text
