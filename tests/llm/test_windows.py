"""Windows through the whole engine: what the prefix cache gives is right however much longer than the window it is."""

from __future__ import annotations

import pytest
import torch
from support.dense_models import CONFIGS, make_dense_model, save_dense_model

from minisgl import LLM, SamplingParams

NAMES = ["mistral, a window", "qwen2, a window in later layers"]
WINDOW = 12
GREEDY = SamplingParams(max_tokens=16, ignore_eos=True)
IDS = torch.randint(0, 256, (160,), generator=torch.Generator().manual_seed(5)).tolist()
LONG, SHORT = IDS[:100], IDS[100:105]
BRANCHES = [LONG[:80] + IDS[100:101], LONG[:80] + IDS[110:150], LONG[:80] + IDS[105:107], LONG[:20]]


@pytest.fixture(scope="module", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    assert CONFIGS[request.param].sliding_window == WINDOW
    return str(request.param)


@pytest.fixture(scope="module")
def folder(name: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_dense_model(CONFIGS[name], tmp_path_factory.mktemp("windows")))


@torch.inference_mode()
def assert_text_of_transformers(name: str, prompt: list[int], text: list[int]) -> None:
    logits = make_dense_model(CONFIGS[name])(torch.tensor([prompt + text[:-1]]), use_cache=False).logits[0]
    assert logits[len(prompt) - 1 :].argmax(-1).tolist() == text


@pytest.mark.parametrize(("page_size", "chunk"), [(1, 8), (1, 64), (16, 8), (16, 64)])
def test_a_prefix_hit_longer_than_the_window_gives_the_text_of_transformers(
    name: str, folder: str, page_size: int, chunk: int
):
    pages = 2048 // page_size
    with LLM(folder, dtype="float32", page_size=page_size, max_extend_tokens=chunk, num_page_override=pages) as llm:
        llm.generate(LONG, GREEDY)
        outputs = llm.generate([*BRANCHES, SHORT], GREEDY)
        llm.cache_manager.check_integrity()
    assert [output["cached_tokens"] for output in outputs[:3]] == [80] * 3
    for prompt, output in zip([*BRANCHES, SHORT], outputs, strict=True):
        assert_text_of_transformers(name, prompt, output["token_ids"])


def test_a_conversation_that_outgrows_the_window_is_that_of_transformers(name: str, folder: str):
    """Each turn finds the one before it, and what was generated there, in the cache."""
    text = SHORT
    with LLM(folder, dtype="float32", num_page_override=512) as llm:
        for turn in range(4):
            output = llm.generate(text, GREEDY)[0]
            assert_text_of_transformers(name, text, output["token_ids"])
            assert output["cached_tokens"] > 0 or turn == 0
            text = text + output["token_ids"] + IDS[120 + turn : 123 + turn]
    assert len(text) > 5 * WINDOW


def test_texts_that_are_served_within_the_window_are_those_of_the_model_without_one(name: str, folder: str):
    """The window is dropped, and nothing is planned for it."""
    with LLM(folder, dtype="float32", num_page_override=512, max_seq_len_override=WINDOW) as llm:
        text = llm.generate(SHORT, SamplingParams(max_tokens=WINDOW - len(SHORT), ignore_eos=True))[0]["token_ids"]
    assert_text_of_transformers(name, SHORT, text)


def test_the_window_matters_in_these_tests(name: str):
    config = CONFIGS[name].to_dict()
    without = type(CONFIGS[name])(**config | {"sliding_window": None, "layer_types": None})
    ids = torch.tensor([BRANCHES[0]])
    with torch.inference_mode():
        logits, other = (make_dense_model(x)(ids).logits[0, -1] for x in (CONFIGS[name], without))
    assert (logits - other).abs().max() > 0.1
