"""The answer to a completion."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from minisgl.core import TokenLogprobs
from minisgl.llm.client import Prepared
from minisgl.llm.stream import Output, choices_of
from minisgl.llm.submission import Delta
from minisgl.server.schema.answers import (
    Completion,
    CompletionChoice,
    CompletionLogprobs,
    EventExplanation,
    FinishReason,
)
from minisgl.server.schema.completions import CompletionRequest
from minisgl.server.stream.answer import Heading, finish_reason
from minisgl.server.stream.events import encode
from minisgl.server.stream.logprobs import CompletionLogprobsMaker
from minisgl.server.stream.openai import EventUsage, OpenAIAnswer
from minisgl.server.stream.usage import usage_of
from minisgl.tokenizer import Tokenizer


class CompletionAnswer(OpenAIAnswer[CompletionChoice]):
    """Every prompt's n choices; choice j of prompt i has index i * n + j. With echo each begins with its prompt."""

    def __init__(
        self, heading: Heading, request: CompletionRequest, prepared: Sequence[Prepared], tokenizer: Tokenizer
    ) -> None:
        super().__init__(heading, request, prepared, tokenizer)
        self._has_logprobs = request.logprobs is not None
        self.shows_tokens = self._has_logprobs or self._has_ids
        self._echo = bool(request.echo)
        self._prompts = request.prompts()
        self._tokenizer = tokenizer
        self._makers: dict[int, CompletionLogprobsMaker] = {}

    def whole(self, outputs: Sequence[Output]) -> bytes:
        each = [choice for output in outputs for choice in choices_of(output)]
        choices = [self._choice(index, output) for index, output in enumerate(each)]
        return encode(self._chunk(choices, usage_of(outputs), self._of_request(outputs)))

    def _choice(self, index: int, output: Output) -> CompletionChoice:
        echoed = self._echo_of(index, output.get("prompt_logprobs"))
        text = (echoed or "") + output["text"]
        logprobs, explanation = self._logprobs(index, output.get("logprobs", [])), self._of_choice(index, output)
        ids = {"prompt_token_ids": self._prompt_token_ids(index), "token_ids": self._token_ids(output)}
        return CompletionChoice(index, text, logprobs, finish_reason(output), explanation, **ids)

    def _echo_of(self, index: int, prompt_logprobs: Sequence[TokenLogprobs | None] | None) -> str | None:
        """The prompt's text, if it is wanted; its logprobs wait in the choice's maker."""
        if not self._echo:
            return None
        prompt, prepared = self._prompts[index // self._n], self.prepared[index // self._n]
        input_ids, skip = prepared.input_ids, prepared.params.skip_special_tokens
        text = prompt if isinstance(prompt, str) else self._tokenizer.decode(input_ids, skip)
        if self._has_logprobs:
            assert prompt_logprobs is not None, f"choice {index} came without its prompt's logprobs"
            self._maker(index).add_prompt(int(input_ids[0]), prompt_logprobs, len(text))
        return text

    def _maker(self, index: int) -> CompletionLogprobsMaker:
        if index not in self._makers:
            prepared, tokenizer = self.prepared[index // self._n], self._tokenizer
            skip = prepared.params.skip_special_tokens
            begins = self._echo or not tokenizer.context(prepared.input_ids, skip)
            self._makers[index] = CompletionLogprobsMaker(tokenizer, skip, begins)
        return self._makers[index]

    def _logprobs(self, index: int, tokens: Sequence[TokenLogprobs]) -> CompletionLogprobs | None:
        if not self._has_logprobs:
            return None
        maker = self._maker(index)
        maker.add(tokens)
        return maker.take()

    def _chunk(
        self, choices: list[CompletionChoice], usage: EventUsage, explanation: EventExplanation = msgspec.UNSET
    ) -> Completion:
        id, created, model = self.heading.id, self.heading.created, self.heading.model
        return Completion(id=id, created=created, model=model, choices=choices, usage=usage, explanation=explanation)

    def _opening(self, index: int, delta: Delta) -> list[CompletionChoice]:
        text = self._echo_of(index, delta.get("prompt_logprobs"))
        if text is None and self._teller is None and not self._has_ids:
            return []
        logprobs, explanation = self._logprobs(index, []), self._of_choice(index, delta)
        return [CompletionChoice(index, text or "", logprobs, None, explanation, self._prompt_token_ids(index))]

    def _text(self, index: int, text: str) -> CompletionChoice:
        return CompletionChoice(index, text)

    def _content(self, index: int, delta: Delta) -> CompletionChoice:
        logprobs = self._logprobs(index, delta.get("logprobs", []))
        return CompletionChoice(index, delta["text"], logprobs, token_ids=self._token_ids(delta))

    def _closing(self, index: int, reason: FinishReason) -> CompletionChoice:
        return CompletionChoice(index, "", finish_reason=reason)
