"""Models with experts through the whole engine: the greedy tokens of transformers under every switch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.tiny_experts import CONFIGS, make_expert_model, save_expert_model

from minisgl import LLM, SamplingParams

MAX_TOKENS = 24
GREEDY = SamplingParams(max_tokens=MAX_TOKENS, ignore_eos=True)


def make_prompts() -> list[list[int]]:
    """Lengths from 1 to 100, some sharing prefixes."""
    rng = np.random.default_rng(0)
    base = rng.integers(0, 256, 100).tolist()
    fresh = [rng.integers(0, 256, n).tolist() for n in (1, 17, 40)]
    return [*fresh, base, base[:64] + fresh[1], base[:70] + fresh[2]]


PROMPTS = make_prompts()
CUTS = [(1, 16), (16, 8), (16, 64)]
"""Sizes of a page and of a chunk; by default each model has one, and each of them several models."""
EACH_FAMILY = ["qwen3-moe", "qwen2-moe, normalised, a dense layer", "mixtral", "gpt-oss"]


@pytest.fixture(scope="module", params=CONFIGS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def folder(name: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_expert_model(CONFIGS[name], tmp_path_factory.mktemp("experts")))


@pytest.fixture(scope="module")
def reference(name: str) -> list[list[int]]:
    """Of transformers, one prompt at a time."""
    model = make_expert_model(CONFIGS[name])
    texts = []
    for prompt in PROMPTS:
        with torch.inference_mode():
            text = model.generate(torch.tensor([prompt]), max_new_tokens=MAX_TOKENS, do_sample=False, eos_token_id=None)
        texts.append(text[0, len(prompt) :].tolist())
    return texts


@pytest.mark.parametrize(
    ("name", "cut"),
    [
        pytest.param(name, cut, marks=pytest.mark.nightly if (i + j) % len(CUTS) else ())
        for i, name in enumerate(CONFIGS)
        for j, cut in enumerate(CUTS)
    ],
    indirect=["name"],
    scope="module",
)
def test_tokens_are_those_of_transformers(folder: str, reference: list[list[int]], cut: tuple[int, int]):
    page_size, chunk = cut
    config = {"page_size": page_size, "max_extend_tokens": chunk, "num_page_override": 2048 // page_size}
    with LLM(folder, dtype="float32", **config) as llm:
        cold = llm.generate(PROMPTS, GREEDY)
        warm = llm.generate(PROMPTS[::-1], GREEDY)[::-1]
        alone = [llm.generate(prompt, GREEDY)[0] for prompt in PROMPTS[:2]]
        llm.cache_manager.check_integrity()
    assert [out["token_ids"] for out in cold] == reference
    assert [out["token_ids"] for out in warm] == reference
    assert [out["token_ids"] for out in alone] == reference[:2]
    assert all(out["cached_tokens"] > 0 for out in warm[3:])


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in EACH_FAMILY else pytest.mark.nightly) for name in CONFIGS],
    indirect=True,
    scope="module",
)
def test_two_ranks_give_the_tokens_of_one(folder: str, reference: list[list[int]]):
    with LLM(folder, dtype="float32", num_page_override=2048, tensor_parallel_size=2) as llm:
        assert [out["token_ids"] for out in llm.generate(PROMPTS, GREEDY)] == reference


@pytest.mark.gpu
@pytest.mark.parametrize("graphs", [0, 8])
def test_tokens_on_a_gpu_are_those_of_the_cpu(folder: str, reference: list[list[int]], graphs: int):
    config = {"attention_backend": "triton", "cuda_graph_max_bs": graphs, "num_page_override": 2048}
    with LLM(folder, device="cuda", dtype="float32", max_running_req=8, **config) as llm:
        for _ in range(2):
            assert [out["token_ids"] for out in llm.generate(PROMPTS, GREEDY)] == reference
