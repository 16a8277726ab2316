"""A token's logits are the same to the bit whatever runs beside it, is cached before it, and how its prompt is cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support.tiny_model import make_tiny_model

from minisgl import LLM, SamplingParams
from minisgl.kernel import has_cpp

pytestmark = pytest.mark.skipif(not has_cpp(torch.empty(0)), reason="no C++ kernels here")

PARAMS = SamplingParams(max_tokens=12, temperature=0.0, logprobs=5, ignore_eos=True)
LENGTHS = (150, 1, 33, 64, 97, 5, 210, 31)


def prompts() -> list[list[int]]:
    """Of several lengths; the last two begin as the first does."""
    generator = torch.Generator().manual_seed(0)
    made = [torch.randint(0, 256, (length,), generator=generator).tolist() for length in LENGTHS]
    return [*made[:-2], made[0][:130] + made[-2], made[0][:71] + made[-1]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def dtype(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def start(folder: Path, dtype: str, **options: Any) -> LLM:
    return LLM(str(folder), device="cpu", dtype=dtype, num_page_override=4096, **options)


def told(outputs: Any) -> list[Any]:
    """Tokens and log-probabilities, which differ where a logit does."""
    return [(output["token_ids"], output["logprobs"]) for output in outputs]


@pytest.fixture(scope="module")
def alone(folder: Path, dtype: str) -> list[Any]:
    """Each prompt by itself in an empty cache."""
    llm = start(folder, dtype)
    results = []
    for prompt in prompts():
        llm.purge_cache()
        results += told(llm.generate([prompt], PARAMS))
    llm.shutdown()
    return results


@pytest.mark.parametrize(
    "options",
    [{}, {"max_extend_tokens": 40}, {"page_size": 16}, {"shared_prefix": "off"}, {"deterministic": True}],
    ids=str,
)
def test_batches_chunks_and_cached_prefixes_change_no_bit(
    folder: Path, dtype: str, alone: list[Any], options: dict[str, Any]
):
    llm = start(folder, dtype, **options)
    assert llm._parts.engine.spec.deterministic
    for _ in range(2):  # cold, and then from the cache
        assert told(llm.generate(prompts(), PARAMS)) == alone
    assert told(llm.generate(prompts()[::-1], PARAMS)) == alone[::-1]
    llm.shutdown()


def test_without_it_other_libraries_multiply_the_same_tokens(folder: Path, alone: list[Any], dtype: str):
    llm = start(folder, dtype, deterministic=False)
    first = told(llm.generate([prompts()[0]], PARAMS))[0]
    assert not llm._parts.engine.spec.deterministic
    logprob, expected = (entries[0].logprob for entries in (first[1], alone[0][1]))
    assert logprob == pytest.approx(expected, rel=0.1)
    llm.shutdown()
