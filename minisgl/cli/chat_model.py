"""Who answers in a chat: a model loaded here, or a running server. `Chat` sees no difference."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from minisgl.cli.chat_stats import stats_lines
from minisgl.cli.report import Totals, error_of
from minisgl.core import SamplingParams

if TYPE_CHECKING:
    from minisgl.llm import LLM

Message = dict[str, str]


@dataclass(frozen=True)
class Piece:
    """A step of a reply. totals: of this turn, with its last piece only. error: why the reply failed, in the last."""

    text: str = ""
    totals: Totals | None = None
    error: str | None = None

    @property
    def is_last(self) -> bool:
        return self.totals is not None or self.error is not None


class ChatModel(Protocol):
    def reply(self, messages: Sequence[Message]) -> Generator[Piece]:
        """The next message, as it comes. Closing it stops the reply. ValueError for messages that are refused."""
        ...

    def stats(self) -> str:
        """What there is to say about the prefix cache, in lines."""
        ...


class LocalModel:
    """A model loaded in this process."""

    def __init__(self, llm: LLM, params: SamplingParams) -> None:
        self._llm = llm
        self._params = params

    def reply(self, messages: Sequence[Message]) -> Generator[Piece]:
        with contextlib.closing(self._llm.chat(messages, self._params, stream=True)) as deltas:
            for delta in deltas:
                output = delta.get("output")
                if output is None:
                    yield Piece(delta["text"])
                else:
                    totals = Totals()
                    totals.add(output)
                    yield Piece(delta["text"], totals, error_of(output))

    def stats(self) -> str:
        stats = self._llm.stats()
        rates = stats.pop("capacity_hit_rates").items()
        return "\n".join([self._llm.tree(), *stats_lines(stats, rates)])
