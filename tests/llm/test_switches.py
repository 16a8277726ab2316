"""Every switch keeps the tokens: those of transformers with the same weights, in float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.pairs import in_pairs
from support.tiny_model import hf_greedy

from minisgl import LLM, SamplingParams

MAX_TOKENS = 12
GREEDY = SamplingParams(max_tokens=MAX_TOKENS, ignore_eos=True)


def make_prompts() -> list[list[int]]:
    """Lengths from 1 to 150, some sharing prefixes that end inside and at the border of pages."""
    rng = np.random.default_rng(0)
    base = rng.integers(0, 256, 150).tolist()
    fresh = [rng.integers(0, 256, n).tolist() for n in (1, 2, 17, 40)]
    return [*fresh, base, base[:64] + fresh[2], base[:70] + fresh[3], base[:64], base[:1], base]


PROMPTS = make_prompts()


@pytest.fixture(scope="module")
def reference(tiny: Path) -> list[list[int]]:
    return hf_greedy(tiny, PROMPTS, MAX_TOKENS)


@in_pairs(cache_type=["radix", "naive"], page_size=[1, 16, 64], chunk=[16, 64, 100_000], overlap=["on", "off"])
def test_tokens_do_not_depend_on_the_switches(
    tiny: Path, reference: list[list[int]], cache_type: str, page_size: int, chunk: int, overlap: str
) -> None:
    config = {"cache_type": cache_type, "page_size": page_size, "max_extend_tokens": chunk, "overlap": overlap}
    with LLM(str(tiny), dtype="float32", num_page_override=4096 // page_size, **config) as llm:
        together = llm.generate(PROMPTS, GREEDY)
        warm = llm.generate(PROMPTS[::-1], GREEDY)[::-1]
        alone = [llm.generate(prompt, GREEDY)[0] for prompt in PROMPTS[:4]]
        llm.cache_manager.check_integrity()
    assert [out["token_ids"] for out in together] == reference
    assert [out["token_ids"] for out in warm] == reference
    assert [out["token_ids"] for out in alone] == reference[:4]
    if cache_type == "radix":
        assert [out["cached_tokens"] for out in warm] == [(len(p) - 1) // page_size * page_size for p in PROMPTS]


@pytest.mark.parametrize("max_running_req", [1, 3])
def test_tokens_do_not_depend_on_how_many_run_together(
    tiny: Path, reference: list[list[int]], max_running_req: int
) -> None:
    with LLM(str(tiny), num_page_override=200, max_running_req=max_running_req) as llm:
        assert [out["token_ids"] for out in llm.generate(PROMPTS, GREEDY)] == reference


def test_tokens_survive_a_pool_too_small_for_the_cache(tiny: Path, reference: list[list[int]]) -> None:
    with LLM(str(tiny), num_page_override=170) as llm:
        for _ in range(2):
            assert [out["token_ids"] for out in llm.generate(PROMPTS, GREEDY)] == reference
        llm.cache_manager.check_integrity()


def test_a_prompt_with_its_own_output_is_the_next_prompt(tiny: Path) -> None:
    with LLM(str(tiny), num_page_override=512) as llm:
        first = llm.generate(PROMPTS[3], GREEDY)[0]["token_ids"]
        turn = PROMPTS[3] + first
        again = llm.generate(turn, GREEDY)[0]
    assert again["cached_tokens"] == len(turn) - 1
    assert again["token_ids"] == hf_greedy(tiny, [turn], MAX_TOKENS)[0]
