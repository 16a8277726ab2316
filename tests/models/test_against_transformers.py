"""Tiny models of transformers give its logits and its greedy text by every way through the engine, and on two ranks."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support.dense_attention import all_logits, load_saved
from support.dense_models import CONFIGS, make_dense_model, save_dense_model
from support.model_ranks import run_rank

from minisgl import LLM, SamplingParams
from minisgl.distributed import Meeting, TPInfo

IDS = torch.randint(0, 256, (50,), generator=torch.Generator().manual_seed(1)).tolist()
PROMPTS = [IDS[:5], IDS[:40], IDS[:24] + IDS[40:], IDS[9:27]]  # the second and the third share 24 tokens
GREEDY = SamplingParams(max_tokens=24, ignore_eos=True)
CUTS = [(1, 16), (16, 8), (16, 64)]
"""Sizes of a page and of a chunk; by default each model has one, and each of them several models."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """All models, saved."""
    root = tmp_path_factory.mktemp("dense")
    return {name: save_dense_model(config, root / str(i)) for i, (name, config) in enumerate(CONFIGS.items())}


@torch.inference_mode()
def logits_of_transformers(model: Any, ids: list[int]) -> torch.Tensor:
    logits: torch.Tensor = model(torch.tensor([ids]), use_cache=False).logits[0]
    return logits


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_equal_those_of_transformers(folders: dict[str, Path], name: str):
    expected = logits_of_transformers(make_dense_model(CONFIGS[name]), IDS)

    ours = all_logits(load_saved(folders[name]), IDS)

    assert expected.std() > 0.3, "logits too flat to tell anything"
    torch.testing.assert_close(ours, expected, atol=1e-3, rtol=0)


@pytest.mark.parametrize("name", CONFIGS)
def test_bfloat16_is_as_near_to_float32_as_that_of_transformers(folders: dict[str, Path], name: str):
    model = make_dense_model(CONFIGS[name])
    exact = logits_of_transformers(model, IDS)
    theirs = logits_of_transformers(model.bfloat16(), IDS)
    ours = all_logits(load_saved(folders[name], dtype=torch.bfloat16), IDS)
    assert ours.dtype == torch.bfloat16
    assert (ours - exact).norm() < 1.3 * (theirs - exact).norm()


@pytest.mark.parametrize(
    ("name", "cut"),
    [
        pytest.param(name, cut, marks=pytest.mark.nightly if (i + j) % len(CUTS) else ())
        for i, name in enumerate(CONFIGS)
        for j, cut in enumerate(CUTS)
    ],
)
def test_greedy_text_is_that_of_transformers_by_every_way_through_the_engine(
    folders: dict[str, Path], name: str, cut: tuple[int, int]
):
    """In chunks and pages of these sizes, cold and warm, together and alone."""
    page_size, chunk = cut
    options = {"page_size": page_size, "max_extend_tokens": chunk, "dtype": "float32"}
    with LLM(str(folders[name]), num_page_override=512 // page_size, **options) as llm:
        texts = [llm.generate(PROMPTS, GREEDY), llm.generate(PROMPTS, GREEDY), llm.generate(PROMPTS[1], GREEDY)]
        llm.cache_manager.check_integrity()

    theirs = make_dense_model(CONFIGS[name])
    for prompt, output in zip(PROMPTS, texts[0], strict=True):
        text = output["token_ids"]
        logits = logits_of_transformers(theirs, prompt + text[:-1])
        assert logits[len(prompt) - 1 :].argmax(-1).tolist() == text
    expected = [output["token_ids"] for output in texts[0]]
    for outputs in texts:
        found = [output["token_ids"] for output in outputs]
        assert found == (expected if len(found) > 1 else expected[1:2])


def test_two_ranks_give_the_logits_of_one(folders: dict[str, Path], tmp_path: Path):
    meeting, names = Meeting(), list(CONFIGS)
    args = ([folders[name] for name in names], IDS, tmp_path)
    other = multiprocessing.get_context("spawn").Process(target=run_rank, args=(TPInfo(1, 2), meeting.port, *args))
    other.start()
    run_rank(TPInfo(0, 2), meeting, *args)
    other.join(timeout=120)
    assert other.exitcode == 0

    for i, name in enumerate(names):
        first, second = (load_file(tmp_path / f"rank{rank}.safetensors")[str(i)] for rank in range(2))
        assert torch.equal(first, second), name
        torch.testing.assert_close(first, all_logits(load_saved(folders[name]), IDS), atol=1e-4, rtol=0)
