"""The answer to a chat."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from minisgl.core import TokenLogprobs
from minisgl.llm.client import Prepared
from minisgl.llm.stream import Output, choices_of
from minisgl.llm.submission import Delta
from minisgl.server.schema.answers import (
    AssistantMessage,
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatDelta,
    ChatLogprobs,
    EventExplanation,
    FinishReason,
)
from minisgl.server.schema.chat import ChatRequest
from minisgl.server.stream.answer import Heading, finish_reason
from minisgl.server.stream.events import encode
from minisgl.server.stream.logprobs import ChatLogprobsMaker
from minisgl.server.stream.openai import EventUsage, OpenAIAnswer
from minisgl.server.stream.usage import usage_of
from minisgl.tokenizer import Tokenizer


class ChatAnswer(OpenAIAnswer[ChatChunkChoice]):
    """One conversation's next message, in n choices. A stream opens each with the role."""

    def __init__(
        self, heading: Heading, request: ChatRequest, prepared: Sequence[Prepared], tokenizer: Tokenizer
    ) -> None:
        super().__init__(heading, request, prepared, tokenizer)
        self.shows_tokens = bool(request.logprobs or request.return_token_ids)
        self._is_first = False  # of the chunks: what the next one begins with
        self._maker = ChatLogprobsMaker(tokenizer) if request.logprobs else None

    def whole(self, outputs: Sequence[Output]) -> bytes:
        (output,) = outputs
        choices = [self._choice(index, choice) for index, choice in enumerate(choices_of(output))]
        id, created, model = self.heading.id, self.heading.created, self.heading.model
        return encode(
            ChatCompletion(
                id=id,
                created=created,
                model=model,
                choices=choices,
                usage=usage_of(outputs),
                explanation=self._of_request(outputs),
                prompt_token_ids=self._prompt_token_ids(0),
            )
        )

    def _choice(self, index: int, output: Output) -> ChatChoice:
        logprobs = self._logprobs(output.get("logprobs", []))
        message, explanation = AssistantMessage(output["text"]), self._of_choice(index, output)
        return ChatChoice(index, message, finish_reason(output), logprobs, explanation, self._token_ids(output))

    def _logprobs(self, tokens: Sequence[TokenLogprobs]) -> ChatLogprobs | None:
        return self._maker.make(tokens) if self._maker is not None else None

    def _chunk(
        self, choices: list[ChatChunkChoice], usage: EventUsage, explanation: EventExplanation = msgspec.UNSET
    ) -> ChatChunk:
        id, created, model = self.heading.id, self.heading.created, self.heading.model
        chunk = ChatChunk(id=id, created=created, model=model, choices=choices, usage=usage, explanation=explanation)
        if self._is_first:
            self._is_first = False
            chunk.prompt_token_ids = self._prompt_token_ids(0)
        return chunk

    def _opening(self, index: int, delta: Delta) -> list[ChatChunkChoice]:
        self._is_first = index == 0
        return [ChatChunkChoice(index, ChatDelta("assistant", ""), explanation=self._of_choice(index, delta))]

    def _text(self, index: int, text: str) -> ChatChunkChoice:
        return ChatChunkChoice(index, ChatDelta(content=text))

    def _content(self, index: int, delta: Delta) -> ChatChunkChoice:
        logprobs, ids = self._logprobs(delta.get("logprobs", [])), self._token_ids(delta)
        return ChatChunkChoice(index, ChatDelta(content=delta["text"]), logprobs, token_ids=ids)

    def _closing(self, index: int, reason: FinishReason) -> ChatChunkChoice:
        return ChatChunkChoice(index, ChatDelta(), finish_reason=reason)
