"""How many tokens a request took."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from minisgl.llm.client import Prepared
from minisgl.llm.stream import Output, choices_of
from minisgl.llm.submission import Delta
from minisgl.server.schema.answers import PromptTokensDetails, Usage


def usage_of(outputs: Iterable[Output]) -> Usage:
    """Of a whole request; a prompt's cached tokens are those of its first choice."""
    prompt = cached = generated = 0
    for output in outputs:
        prompt += output["prompt_tokens"]
        cached += output["cached_tokens"]
        generated += sum(len(choice["token_ids"]) for choice in choices_of(output))
    return _usage(prompt, cached, generated)


class RunningUsage:
    """Of a request until now, for streams that want it in every event."""

    def __init__(self, prepared: Sequence[Prepared]) -> None:
        self._prompt_tokens = sum(len(prompt.input_ids) for prompt in prepared)
        self._cached: dict[int, int] = {}
        self._generated = 0

    def count(self, delta: Delta) -> Usage:
        self._generated += len(delta["token_ids"])
        if delta["choice"] == 0:
            self._cached[delta["index"]] = delta["cached_tokens"]
        return _usage(self._prompt_tokens, sum(self._cached.values()), self._generated)


def _usage(prompt: int, cached: int, generated: int) -> Usage:
    return Usage(prompt, generated, prompt + generated, PromptTokensDetails(cached))
