"""Two processes that share a model in small integers give what one gives.

Weights are the same integers, since groups are cut nowhere. But each rank adds up its own inputs first, which is
another order of a sum of floats, and a difference in the last bit may round an activation to the next integer. So
probabilities differ by some hundredths, and tokens where two are nearly as likely.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.tiny_model import make_tiny_model

from minisgl import LLM, SamplingParams

SHAPE: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 128}  # whole groups on each of two ranks
PARAMS = SamplingParams(max_tokens=10, ignore_eos=True, logprobs=1)
READ = SamplingParams(max_tokens=0, prompt_logprobs=1)
PROMPTS = [[i * 7 % 256 for i in range(start, start + length)] for start, length in ((0, 1), (3, 9), (3, 60), (90, 33))]


@pytest.fixture(scope="module", params=["int8", "int4 tied"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LLM, LLM]]:
    """The same model in one process and in two, which cannot share a vocabulary of 301 evenly."""
    quantization, _, tied = request.param.partition(" ")
    path = str(
        make_tiny_model(tmp_path_factory.mktemp("tiny"), vocab_size=301, tie_word_embeddings=bool(tied), **SHAPE)
    )
    switches: dict[str, Any] = {"quantization": quantization, "num_page_override": 512, "max_extend_tokens": 40}
    with LLM(path, **switches) as alone, LLM(path, **switches, tensor_parallel_size=2) as shared:
        yield alone, shared


def answers(outputs: list[Any]) -> list[tuple[list[int], list[float]]]:
    return [(output["token_ids"], [entry.logprob for entry in output["logprobs"]]) for output in outputs]


def test_a_text_has_the_same_bits_cold_and_warm_together_and_alone(pair: tuple[LLM, LLM]) -> None:
    _, shared = pair
    cold = answers(shared.generate(PROMPTS, PARAMS))
    assert answers(shared.generate(PROMPTS, PARAMS)) == cold
    assert answers([shared.generate([prompt], PARAMS)[0] for prompt in PROMPTS]) == cold


def test_probabilities_are_those_of_one_rank(pair: tuple[LLM, LLM]) -> None:
    alone, shared = pair
    outputs = alone.generate(PROMPTS, PARAMS)
    texts = [prompt + output["token_ids"] for prompt, output in zip(PROMPTS, outputs, strict=True)]
    for expected, got in zip(*(llm.generate(texts, READ) for llm in pair), strict=True):
        pairs = zip(expected["prompt_logprobs"][1:], got["prompt_logprobs"][1:], strict=True)
        assert all(ours.logprob == pytest.approx(theirs.logprob, abs=0.15) for theirs, ours in pairs)
    for expected, (_, got) in zip(outputs, answers(shared.generate(PROMPTS, PARAMS)), strict=True):
        assert got[0] == pytest.approx(expected["logprobs"][0].logprob, abs=0.15)
