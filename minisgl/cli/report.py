"""How `generate` reports: the totals in one line, and outputs as lines of strict JSON."""

from __future__ import annotations

import codecs
import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any

Output = Mapping[str, Any]


@dataclass
class Totals:
    """Sums over finished outputs: a prompt counts once, with the tokens that its first choice found cached."""

    num_prompts: int = 0
    num_failed: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0

    def add(self, output: Output) -> None:
        choices = choices_of(output)
        self.num_prompts += 1
        self.num_failed += error_of(output) is not None
        self.prompt_tokens += output["prompt_tokens"]
        self.cached_tokens += output["cached_tokens"]
        self.generated_tokens += sum(len(choice["token_ids"]) for choice in choices)

    def line(self, seconds: float) -> str:
        """One line for people, about all prompts."""
        prompts = f"{self.num_prompts} prompt{'s' * (self.num_prompts != 1)}"
        failed = f", {self.num_failed} failed" if self.num_failed else ""
        return f"{prompts}, {self.tokens_line(seconds)}{failed}"

    def tokens_line(self, seconds: float) -> str:
        """The same about tokens alone; tok/s is of generated tokens, over all the time."""
        cached = self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0
        speed = self.generated_tokens / max(seconds, 1e-9)
        return (
            f"{self.prompt_tokens} prompt tokens ({cached:.0%} cached), {self.generated_tokens} generated, "
            f"{speed:.1f} tok/s, {seconds:.2f} s"
        )


def choices_of(output: Output) -> list[Output]:
    """The texts of one prompt: n outputs, or the output itself."""
    return output.get("choices") or [output]


def error_of(output: Output) -> str | None:
    """Why a prompt failed: the error of the first of its choices that did."""
    return next((choice["error"] for choice in choices_of(output) if "error" in choice), None)


def cut_at(output: Output, max_tokens: int) -> int | None:
    """After how many tokens a text ended for lack of room, though more were allowed; None if none did."""
    ends = [len(choice["token_ids"]) for choice in choices_of(output) if choice["finish_reason"] == "length"]
    return min((end for end in ends if end < max_tokens), default=None)


def is_utf8(stream: IO[str]) -> bool:
    """Whether it takes any character as it is. Streams that keep text (of tests, say) have no encoding and do."""
    name = getattr(stream, "encoding", None)
    return name is None or codecs.lookup(name).name == "utf-8"


def json_line(record: Mapping[str, Any], only_ascii: bool = False) -> str:
    """One line of strict JSON. A number that JSON lacks (a log-probability of -inf) becomes null."""
    return json.dumps(_plain(record), ensure_ascii=only_ascii, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain(dataclasses.asdict(value))
    return value
