"""The two endpoints of OpenAI's API, as a benchmark uses them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Turn = tuple[str, str]  # a question and its answer


@dataclass(frozen=True)
class Backend:
    """path: of the endpoint. prompt: the fields that say what is asked, of system, earlier turns and question."""

    path: str
    prompt: Callable[[str, Sequence[Turn], str], dict[str, Any]]


def _completions_prompt(system: str, history: Sequence[Turn], question: str) -> dict[str, Any]:
    parts = [system] if system else []
    parts += [text for question_and_answer in history for text in question_and_answer]
    return {"prompt": "\n".join([*parts, question])}


def _chat_prompt(system: str, history: Sequence[Turn], question: str) -> dict[str, Any]:
    messages = [{"role": "system", "content": system}] if system else []
    for asked, answered in history:
        messages += [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}]
    return {"messages": [*messages, {"role": "user", "content": question}]}


BACKENDS = {
    "completions": Backend("/v1/completions", _completions_prompt),
    "chat": Backend("/v1/chat/completions", _chat_prompt),
}
