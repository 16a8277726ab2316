"""The same tokens on a GPU, in float32, through the same plain torch code."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from minisgl import LLM, SamplingParams

pytestmark = pytest.mark.gpu
GREEDY = SamplingParams(max_tokens=12, ignore_eos=True)


def make_prompts() -> list[list[int]]:
    rng = np.random.default_rng(1)
    base = rng.integers(0, 256, 120).tolist()
    return [base, [*base[:80], 3, 4], rng.integers(0, 256, 33).tolist(), [7], base]


@pytest.fixture(scope="module")
def reference(tiny: Path) -> list[list[int]]:
    with LLM(str(tiny), device="cpu", dtype="float32", num_page_override=1024) as llm:
        return [out["token_ids"] for out in llm.generate(make_prompts(), GREEDY)]


@pytest.mark.parametrize(
    ("page_size", "chunk", "overlap"), list(itertools.product([1, 16], [32, 100_000], ["off", "on"]))
)
def test_tokens_are_those_of_the_cpu(
    tiny: Path, reference: list[list[int]], page_size: int, chunk: int, overlap: str
) -> None:
    config = {"page_size": page_size, "max_extend_tokens": chunk, "overlap": overlap}
    with LLM(str(tiny), device="cuda", dtype="float32", num_page_override=2048 // page_size, **config) as llm:
        for _ in range(2):  # cold, then warm
            assert [out["token_ids"] for out in llm.generate(make_prompts(), GREEDY)] == reference
        llm.cache_manager.check_integrity()


def test_the_pool_is_sized_from_the_gpus_memory(tiny: Path) -> None:
    with LLM(str(tiny), device="cuda", memory_ratio=0.01, max_running_req=4) as llm:
        assert llm._parts.overlap
        assert llm.stats()["num_pages"] == 2 * 4 * 512  # twice what all of them can use, which fits easily
        assert len(llm.generate("hello", GREEDY)[0]["token_ids"]) == 12
