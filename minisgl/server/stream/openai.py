"""What streams of chats and of completions have in common: a chunk a delta, usage at the end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import msgspec

from minisgl.llm.client import Prepared
from minisgl.llm.stream import Output
from minisgl.llm.submission import Delta
from minisgl.server.explaining import Teller
from minisgl.server.schema.answers import (
    ChatChunkChoice,
    CompletionChoice,
    EventExplanation,
    FinishReason,
    TokenIds,
    Usage,
)
from minisgl.server.schema.sampling import GeneratingBody
from minisgl.server.stream.answer import Heading, finish_reason
from minisgl.server.stream.events import DONE, TextEvent, event
from minisgl.server.stream.usage import RunningUsage, usage_of
from minisgl.tokenizer import Tokenizer

Choice = TypeVar("Choice", ChatChunkChoice, CompletionChoice)
EventUsage = Usage | None | msgspec.UnsetType


class OpenAIAnswer(ABC, Generic[Choice]):
    """Of every choice: an opening, text as it comes, and one event with the finish reason.

    The first event has the explanation, if it is asked for; the first deltas must then be of all prompts.

    shows_tokens: every delta's logprobs or token ids are to be shown, with text or without.
    """

    shows_tokens: bool

    def __init__(
        self, heading: Heading, request: GeneratingBody, prepared: Sequence[Prepared], tokenizer: Tokenizer
    ) -> None:
        self.heading = heading
        self.prepared = prepared
        self._n = prepared[0].params.n
        self._include_usage = request.include_usage
        self._running_usage = RunningUsage(prepared) if request.continuous_usage else None
        self._text_events: dict[int, TextEvent] = {}
        self._has_ids = bool(request.return_token_ids)
        self._teller = Teller(prepared, tokenizer) if request.explain else None
        self._first_explanation: EventExplanation = msgspec.UNSET  # what the stream's next event begins with

    def events(self, deltas: Sequence[Delta]) -> bytes:
        if self._teller is not None and not self._text_events:
            self._first_explanation = self._of_request(_by_prompt(deltas))
        if len(deltas) == 1:
            return self._events_of(deltas[0])
        return b"".join(map(self._events_of, deltas))

    def end(self, outputs: Sequence[Output]) -> bytes:
        if not self._include_usage:
            return DONE
        return event(self._chunk([], usage_of(outputs))) + DONE

    def _events_of(self, delta: Delta) -> bytes:
        index = delta["index"] * self._n + delta["choice"]
        text_event = self._text_events.get(index)
        if text_event is None or self.shows_tokens or self._running_usage or delta["finish_reason"] is not None:
            return self._rare_events(index, delta)
        return text_event(delta["text"]) if delta["text"] else b""

    def _rare_events(self, index: int, delta: Delta) -> bytes:
        """The first and the last of a choice, and those in which more than the text changes."""
        choices = []
        if index not in self._text_events:
            self._text_events[index] = TextEvent(self._chunk([self._text(index, TextEvent.MARK)], self._no_usage))
            choices += self._opening(index, delta)
        if delta["text"] or (self.shows_tokens and delta["token_ids"]):
            choices.append(self._content(index, delta))
        if delta["finish_reason"] is not None:
            choices.append(self._closing(index, finish_reason(delta)))
        usage = self._no_usage if self._running_usage is None else self._running_usage.count(delta)
        return b"".join([event(self._chunk([choice], usage, self._take_explanation())) for choice in choices])

    def _take_explanation(self) -> EventExplanation:
        explanation, self._first_explanation = self._first_explanation, msgspec.UNSET
        return explanation

    def _of_request(self, news: Sequence[Delta | Output]) -> EventExplanation:
        """The explanation, if it is wanted. news: of each prompt's first choice."""
        if self._teller is None:
            return msgspec.UNSET
        return self._teller.of_all([each.get("explanation") for each in news])

    def _of_choice(self, index: int, news: Delta | Output) -> EventExplanation:
        """A choice's own, where there are several. news: its output, or its first delta."""
        if self._teller is None or len(self.prepared) == self._n == 1:
            return msgspec.UNSET
        return self._teller.of(index // self._n, news.get("explanation"))

    def _token_ids(self, news: Delta | Output) -> TokenIds:
        """New ones of a choice, if they are asked for."""
        return list(news["token_ids"]) if self._has_ids else msgspec.UNSET

    def _prompt_token_ids(self, index: int) -> TokenIds:
        """The tokens of a choice's prompt, if they are asked for."""
        return self.prepared[index // self._n].input_ids.tolist() if self._has_ids else msgspec.UNSET

    @property
    def _no_usage(self) -> EventUsage:
        return None if self._include_usage else msgspec.UNSET

    @abstractmethod
    def whole(self, outputs: Sequence[Output]) -> bytes: ...

    @abstractmethod
    def _chunk(
        self, choices: list[Choice], usage: EventUsage, explanation: EventExplanation = msgspec.UNSET
    ) -> Any: ...

    @abstractmethod
    def _opening(self, index: int, delta: Delta) -> list[Choice]:
        """What comes before a choice's own text."""
        ...

    @abstractmethod
    def _text(self, index: int, text: str) -> Choice:
        """Nothing but text."""
        ...

    @abstractmethod
    def _content(self, index: int, delta: Delta) -> Choice:
        """A delta's text, and its logprobs and token ids if they are asked for."""
        ...

    @abstractmethod
    def _closing(self, index: int, reason: FinishReason) -> Choice: ...


def _by_prompt(deltas: Sequence[Delta]) -> list[Delta]:
    """Those of first choices, in the order of the prompts."""
    return sorted((delta for delta in deltas if delta["choice"] == 0), key=lambda delta: delta["index"])
