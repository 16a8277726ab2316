"""A made-up LLM for the commands, and a way to run a command line as a user would."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from minisgl.cli import main
from minisgl.core import SamplingParams
from minisgl.llm import LLMConfig


class FakeClient:
    """One id a character; a text with "refuse" in it can never run."""

    def prepare(self, prompt: str, params: SamplingParams) -> SimpleNamespace:
        if "refuse" in prompt:
            raise ValueError("token id 7 is outside the vocabulary")
        return SimpleNamespace(input_ids=np.array([ord(char) for char in prompt], dtype=np.int32))

    def prepare_chat(
        self, messages: list[dict[str, str]], params: SamplingParams, template: dict[str, Any]
    ) -> SimpleNamespace:
        return self.prepare("".join(f"<{message['role']}>{message['content']}" for message in messages), params)


class FakeLLM:
    """Answers a text with its upper case, a character a chunk, two prompts in turns; "bad" fails after a character,
    "cut" has no room for more.

    press_ctrl_c_at: send SIGINT to this process before the chunk with this number, `num_presses` times.
    """

    last: FakeLLM
    press_ctrl_c_at: int | None = None
    num_presses = 1
    sampling_defaults: ClassVar[dict[str, float]] = {}

    def __init__(self, model: str, **config: Any) -> None:
        LLMConfig.from_kwargs(model=model, **config)
        self.model, self.config = model, config
        self.client = FakeClient()
        self.spec = SimpleNamespace(dtype=torch.float32, device=torch.device("cpu"), max_seq_len=8192)
        self.calls: list[tuple[Any, SamplingParams]] = []
        self.aborted = self.is_shut_down = False
        FakeLLM.last = self

    def __enter__(self) -> FakeLLM:
        return self

    def __exit__(self, *error: object) -> None:
        self.is_shut_down = True

    def generate(self, prompts: list[Any], params: SamplingParams, *, stream: bool) -> Iterator[dict[str, Any]]:
        assert stream
        self.calls.append((prompts, params))
        return self._stream(["".join(map(chr, ids)) for ids in prompts], params.n)

    def chat(self, messages: list[dict[str, str]], params: SamplingParams, *, stream: bool) -> Iterator[dict[str, Any]]:
        assert stream
        self.calls.append(([dict(message) for message in messages], params))
        self.client.prepare_chat(messages, params, {})
        return self._stream([messages[-1]["content"]])

    def stats(self) -> dict[str, Any]:
        return {
            "num_pages": 64,
            "page_size": 16,
            "hit_rate": 0.75,
            "capacity_hit_rates": {0.5: 0.625, 1: 0.75, 2: 0.875},
        }

    def tree(self) -> str:
        return "root\n└── [12 tokens]"

    def _stream(self, texts: list[str], n: int = 1) -> Iterator[dict[str, Any]]:
        try:
            for chunk in self._chunks(texts):
                if n > 1 and "output" in chunk:
                    chunk["output"]["choices"] = [chunk["output"].copy()] * n
                yield chunk
        except (GeneratorExit, KeyboardInterrupt):
            self.aborted = True
            raise

    def _chunks(self, texts: list[str]) -> Iterator[dict[str, Any]]:
        number = 0
        for position in range(max(map(len, texts)) + 1):
            for index, text in enumerate(texts):
                if position <= len(text):
                    if number == self.press_ctrl_c_at:
                        for _ in range(self.num_presses):
                            os.kill(os.getpid(), signal.SIGINT)
                    yield make_chunk(index, text, position)
                    number += 1


def make_chunk(index: int, text: str, position: int) -> dict[str, Any]:
    chunk = {"index": index, "text": "", "token_ids": [], "finish_reason": None}
    if position < len(text):
        return {**chunk, "text": text[position].upper(), "token_ids": [1]}
    output = {"text": text.upper(), "token_ids": [1] * len(text), "finish_reason": "stop"}
    output |= {"prompt_tokens": len(text), "cached_tokens": len(text) // 2, "logprobs": [float("-inf")]}
    if text == "cut":
        output |= {"finish_reason": "length"}
    if text == "bad":
        output |= {"text": "", "token_ids": [], "finish_reason": "error", "error": "out of luck"}
    return {**chunk, "finish_reason": output["finish_reason"], "output": output}


@dataclass
class Done:
    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def fake_llm(monkeypatch: pytest.MonkeyPatch) -> type[FakeLLM]:
    monkeypatch.setattr("minisgl.llm.LLM", FakeLLM)
    monkeypatch.setattr("minisgl.utils.model_store.resolve_model", lambda name, need_weights: None)
    monkeypatch.setattr(FakeLLM, "press_ctrl_c_at", None)
    return FakeLLM


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run("generate", "hi", stdin="...")`: exit code, stdout and stderr of a command line."""

    def run_line(*arguments: str, stdin: str = "") -> Done:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main(arguments)
        captured = capsys.readouterr()
        return Done(int(exit_.value.code or 0), captured.out, captured.err)

    return run_line
