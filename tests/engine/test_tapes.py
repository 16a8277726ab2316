"""Forward passes of few tokens are played from tapes, and give to the bit what they give without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.dense_models import CONFIGS, SHAPE, save_dense_model
from support.needs import CPP_KERNELS
from support.tiny_model import make_tiny_model
from transformers import LlamaConfig

from minisgl import LLM, SamplingParams
from minisgl.engine import tapes
from minisgl.kernel.tape import Tape

pytestmark = CPP_KERNELS
PARAMS = SamplingParams(max_tokens=8, temperature=0.0, logprobs=3, ignore_eos=True)
EVEN = LlamaConfig(**SHAPE | {"intermediate_size": 96})  # whole groups of 32
TOLD = SamplingParams(max_tokens=2, logprobs=1, temperature=0.0, prompt_logprobs=2, ignore_eos=True)
PROMPTS = [[*range(1 + i, 30 + i * 9)] for i in range(4)]
OPTIONS: dict[str, Any] = {"device": "cpu", "num_page_override": 1024, "max_extend_tokens": 48}


class Counted:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.played = 0
        play = Tape.play

        def count(tape: Tape) -> Any:
            self.played += 1
            return play(tape)

        monkeypatch.setattr(Tape, "play", count)


def answers(folder: Path, **options: Any) -> list[Any]:
    """Of decodes alone, prompts in chunks, both in one batch, several that share a prefix, and some told of prompts."""
    llm = LLM(str(folder), **OPTIONS | options)
    try:
        outputs = [
            *llm.generate([PROMPTS[0]], PARAMS),
            *llm.generate(PROMPTS, PARAMS),
            *llm.generate([[*PROMPTS[3], i] for i in range(4)], PARAMS),
            *llm.generate([[*range(60, 75)], [*range(90, 105)]], TOLD),
        ]
        return [(output["token_ids"], output.get("logprobs"), output.get("prompt_logprobs")) for output in outputs]
    finally:
        llm.shutdown()


def both(folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> tuple[int, list[Any], list[Any]]:
    """How many forward passes were played, the answers with tapes, and those without."""
    counted = Counted(monkeypatch)
    played = answers(folder, **options)
    num_played = counted.played
    monkeypatch.setattr(tapes, "MOST_TOKENS", 0)
    return num_played, played, answers(folder, **options)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_architecture_without_experts_is_played(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    num_played, played, run = both(save_dense_model(CONFIGS[name], tmp_path), monkeypatch)
    assert num_played > 12
    assert played == run


@pytest.mark.parametrize(
    "options",
    [{"dtype": "bfloat16"}, {"dtype": "bfloat16", "quantization": "int8", "page_size": 16}, {"quantization": "int4"}],
    ids=str,
)
def test_dtypes_and_integers_are_played_to_the_bit(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    num_played, played, run = both(save_dense_model(EVEN, tmp_path), monkeypatch, **options)
    assert num_played > 12
    assert played == run


def test_a_batch_out_of_memory_leaves_tapes_that_can_be_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    expected = answers(make_tiny_model(tmp_path))
    play, failures = Tape.play, iter([True])

    def fail_once(tape: Tape) -> Any:
        if next(failures, False):
            raise MemoryError("no memory for call 1 of the 9 that a tape makes")
        return play(tape)

    monkeypatch.setattr(Tape, "play", fail_once)
    llm = LLM(str(tmp_path), **OPTIONS)
    try:
        failed = llm.generate([PROMPTS[0]], PARAMS)[0]
        assert failed["finish_reason"] == "error"
        again = llm.generate([PROMPTS[0]], PARAMS)[0]
        assert (again["token_ids"], again["logprobs"]) == expected[0][:2]
    finally:
        llm.shutdown()
