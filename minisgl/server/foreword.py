"""What a response that is asked for an explanation says before its first token."""

from __future__ import annotations

from collections.abc import Sequence

from minisgl.llm.client import Prepared
from minisgl.llm.run import Merged
from minisgl.llm.submission import Delta
from minisgl.server.explaining import Facts, Headers, Teller, headers_of
from minisgl.tokenizer import Tokenizer


class Foreword:
    """Hears of every prompt's admission, which is that of its first choice; its headers are about all of them."""

    def __init__(self, prepared: Sequence[Prepared], tokenizer: Tokenizer) -> None:
        self._teller = Teller(prepared, tokenizer)
        self._num_prompts = len(prepared)
        self._heard: dict[int, Facts | None] = {}
        self._held = Merged()

    @property
    def is_complete(self) -> bool:
        """Whether all prompts are admitted."""
        return len(self._heard) == self._num_prompts

    def hear(self, deltas: Sequence[Delta]) -> None:
        for delta in deltas:
            if "queue_s" in delta and delta["choice"] == 0:
                self._heard[delta["index"]] = delta.get("explanation")

    def hold(self, deltas: Sequence[Delta]) -> list[Delta]:
        """What of a stream may be written: nothing before all prompts are admitted, then all that has come."""
        for delta in deltas:
            self._held.add(delta)
        return self._held.take() if self.is_complete else []

    def headers(self) -> Headers:
        """Once it is complete. None where the engine explains nothing."""
        return headers_of(self._teller.of_all([self._heard[index] for index in range(self._num_prompts)]))
