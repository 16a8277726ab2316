"""The answer of /generate, in SGLang's form: every event of a stream has the whole text so far."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

from minisgl.llm.client import Prepared
from minisgl.llm.stream import Output, choices_of
from minisgl.llm.submission import Delta
from minisgl.server.explaining import Teller
from minisgl.server.schema.explanation import PromptExplanation
from minisgl.server.schema.generate import Generated, GenerateRequest
from minisgl.server.stream.answer import Heading
from minisgl.server.stream.events import DONE, encode, event
from minisgl.server.stream.generate_logprobs import Logprobs, LogprobsMaker
from minisgl.tokenizer import Tokenizer


class GenerateAnswer:
    """One object for one text, or a list of them when prompts came as a list or n is more than 1.

    In a stream the prompt's logprobs and the explanation are in the first event of a choice and in its last one.
    """

    def __init__(
        self, heading: Heading, request: GenerateRequest, prepared: Sequence[Prepared], tokenizer: Tokenizer
    ) -> None:
        self._id = heading.id
        self._prepared = prepared
        self._is_list = request.is_list or any(prompt.params.n > 1 for prompt in prepared)
        self._firsts = _first_indexes(prepared)
        self._progress: dict[int, _Progress] = {}
        self._maker = LogprobsMaker(request, tokenizer) if request.return_logprob else None
        self._with_prompt = request.wants_prompt_logprobs
        self._teller = Teller(prepared, tokenizer) if request.explain else None
        self._started = perf_counter()

    def whole(self, outputs: Sequence[Output]) -> bytes:
        items = [
            self._item(_Progress(), choice, index)
            for index, output in enumerate(outputs)
            for choice in choices_of(output)
        ]
        return encode(items if self._is_list else items[0])

    def events(self, deltas: Sequence[Delta]) -> bytes:
        return b"".join([self._event(delta) for delta in deltas])

    def end(self, outputs: Sequence[Output]) -> bytes:
        return DONE

    def _event(self, delta: Delta) -> bytes:
        index = self._firsts[delta["index"]] + delta["choice"]
        progress = self._progress.setdefault(index, _Progress())
        item = self._item(progress, delta, delta["index"])
        if self._is_list:
            item.index = index
        return event(item)

    def _item(self, progress: _Progress, news: Delta | Output, prompt_index: int) -> Generated:
        """The choice until now, these news included."""
        is_first = not progress.has_begun
        progress.add(news)
        meta: dict[str, Any] = {
            "id": self._id,
            "finish_reason": _finish_reason(news["finish_reason"], len(progress.token_ids)),
            "prompt_tokens": news["prompt_tokens"],
            "completion_tokens": len(progress.token_ids),
            "cached_tokens": news["cached_tokens"],
            "e2e_latency": perf_counter() - self._started,
        }
        if self._maker is not None:
            meta |= self._logprobs(self._maker, progress, news, self._prepared[prompt_index])
        if self._teller is not None:
            if is_first:
                progress.explanation = self._teller.of(prompt_index, news.get("explanation"))
            if is_first or news["finish_reason"] is not None:
                meta["explanation"] = progress.explanation
        return Generated(progress.text, progress.token_ids, meta)

    def _logprobs(
        self, maker: LogprobsMaker, progress: _Progress, news: Delta | Output, prompt: Prepared
    ) -> dict[str, Any]:
        maker.add(progress.output, news.get("logprobs", ()))
        made = maker.meta("output", progress.output)
        prompt_logprobs = news.get("prompt_logprobs") if self._with_prompt else None
        if prompt_logprobs is not None:
            progress.prompt = maker.of_prompt(int(prompt.input_ids[0]), prompt_logprobs)
        if progress.prompt is not None and (prompt_logprobs is not None or news["finish_reason"] is not None):
            made |= maker.meta("input", progress.prompt)
        return made


class _Progress:
    """A choice until now. prompt: None where its logprobs are not wanted."""

    def __init__(self) -> None:
        self.has_begun = False
        self.text = ""
        self.token_ids: list[int] = []
        self.output = Logprobs()
        self.prompt: Logprobs | None = None
        self.explanation: PromptExplanation | None = None

    def add(self, news: Delta | Output) -> None:
        self.has_begun = True
        self.text += news["text"]
        self.token_ids += news["token_ids"]


def _first_indexes(prepared: Sequence[Prepared]) -> list[int]:
    """Where each prompt's choices begin; prompts may have different n."""
    firsts, count = [], 0
    for prompt in prepared:
        firsts.append(count)
        count += prompt.params.n
    return firsts


def _finish_reason(reason: str | None, num_tokens: int) -> dict[str, Any] | None:
    if reason == "length":
        return {"type": "length", "length": num_tokens}
    return None if reason is None else {"type": reason}
