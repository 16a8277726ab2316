"""Sixteen streams on a quarter of the pages that they need: every answer is the one of a run with room for all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.serving import StingyReserve

from minisgl import LLM, SamplingParams
from minisgl.env import ENV
from minisgl.scheduler.reserve import RESERVES

NUM_STREAMS, MAX_TOKENS = 16, 32
KINDS: list[dict[str, Any]] = [
    {"logprobs": 2},
    {"temperature": 0.9, "top_p": 0.95, "logprobs": 0},
    {"repetition_penalty": 1.3, "presence_penalty": 0.7, "frequency_penalty": 0.4, "logprobs": 0},
    {"temperature": 1.2, "top_k": 40, "frequency_penalty": 1.5, "min_tokens": 30},
    {"prompt_logprobs": 1, "logprobs": 1},
    {"stop": ["e", "\x00"], "min_tokens": 8},
]
PROMPTS = [f"{chr(65 + number)} is stream {number} " + "x" * (4 * number) for number in range(NUM_STREAMS)]
PARAMS = [SamplingParams(max_tokens=MAX_TOKENS, seed=7 + i, **KINDS[i % len(KINDS)]) for i in range(NUM_STREAMS)]

DEMAND = sum(len(text) + MAX_TOKENS for text in PROMPTS)


def answers(folder: Path, num_tokens: int, **config: Any) -> tuple[list[dict[str, Any]], int]:
    """The outputs, without times, and how often a request was retracted."""
    num_pages = num_tokens // config["page_size"]
    with LLM(str(folder), num_page_override=num_pages, max_running_req=NUM_STREAMS, **config) as llm:
        outputs = llm.generate(PROMPTS, PARAMS)
        num_retracted = llm.stats()["num_retracted"]
        llm.cache_manager.check_integrity()
    return [{key: value for key, value in out.items() if key != "timings"} for out in outputs], num_retracted


def numbers(value: Any) -> list[float]:
    """Every number in it."""
    if isinstance(value, dict):
        return [number for each in value.values() for number in numbers(each)]
    if isinstance(value, list | tuple):
        return [number for each in value for number in numbers(each)]
    return [value] if isinstance(value, int | float) else []


def without_logprobs(output: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in output.items() if "logprobs" not in key}


@pytest.fixture(scope="module")
def wanted(tiny: Path) -> list[dict[str, Any]]:
    """With room for all."""
    outputs, num_retracted = answers(tiny, 2 * DEMAND, page_size=1)
    assert num_retracted == 0
    return outputs


@pytest.mark.parametrize(("page_size", "overlap"), [(1, "on"), (16, "off")])
def test_a_quarter_of_the_pages_gives_the_same_answers(
    tiny: Path, wanted: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, page_size: int, overlap: str
) -> None:
    monkeypatch.setattr(ENV.CHECK_INTEGRITY, "value", True)
    monkeypatch.setitem(RESERVES, "estimate", StingyReserve)
    got, num_retracted = answers(tiny, DEMAND // 4, page_size=page_size, overlap=overlap, max_extend_tokens=100)
    assert num_retracted >= 5
    for mine, other in zip(got, wanted, strict=True):
        assert numbers(mine) == pytest.approx(numbers(other), abs=1e-4)
        assert without_logprobs(mine) == without_logprobs(other)
