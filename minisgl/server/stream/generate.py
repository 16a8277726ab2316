"""The answer of /generate, in SGLang's form: every event of a stream has the whole text so far."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

from minisgl.core import TokenLogprobs
from minisgl.llm.client import Delta, Prepared
from minisgl.llm.stream import Output, choices_of
from minisgl.server.schema.generate import Generated, GenerateRequest
from minisgl.server.stream.answer import Heading
from minisgl.server.stream.events import DONE, encode, event
from minisgl.server.stream.logprobs import token_name
from minisgl.tokenizer import TokenBytes, Tokenizer


class GenerateAnswer:
    """One object for one text, or a list of them when prompts came as a list or n is more than 1."""

    def __init__(
        self, heading: Heading, request: GenerateRequest, prepared: Sequence[Prepared], tokenizer: Tokenizer
    ) -> None:
        self._id = heading.id
        self._prepared = prepared
        self._is_list = request.is_list or any(prompt.params.n > 1 for prompt in prepared)
        self._firsts = _first_indexes(prepared)
        self._progress: dict[int, _Progress] = {}
        self._logprobs = _Logprobs(request, tokenizer) if request.return_logprob else None
        self._started = perf_counter()

    def whole(self, outputs: Sequence[Output]) -> bytes:
        each = [choice for output in outputs for choice in choices_of(output)]
        items = [self._item(index, _Progress.of(output)) for index, output in enumerate(each)]
        return encode(items if self._is_list else items[0])

    def events(self, deltas: Sequence[Delta]) -> bytes:
        return b"".join([self._event(delta) for delta in deltas])

    def end(self, outputs: Sequence[Output]) -> bytes:
        return DONE

    def _event(self, delta: Delta) -> bytes:
        index = self._firsts[delta["index"]] + delta["choice"]
        progress = self._progress.setdefault(index, _Progress())
        progress.add(delta)
        item = self._item(index, progress)
        if self._is_list:
            item.index = index
        return event(item)

    def _item(self, index: int, progress: _Progress) -> Generated:
        meta = {
            "id": self._id,
            "finish_reason": _finish_reason(progress),
            "prompt_tokens": progress.prompt_tokens,
            "completion_tokens": len(progress.token_ids),
            "cached_tokens": progress.cached_tokens,
            "e2e_latency": perf_counter() - self._started,
        }
        if self._logprobs is not None:
            meta |= self._logprobs.meta(self._prompt_of(index), progress)
        return Generated(progress.text, progress.token_ids, meta)

    def _prompt_of(self, index: int) -> Prepared:
        return self._prepared[max(i for i, first in enumerate(self._firsts) if first <= index)]


class _Progress:
    """A choice until now."""

    def __init__(self) -> None:
        self.text = ""
        self.token_ids: list[int] = []
        self.finish_reason: str | None = None
        self.prompt_tokens = self.cached_tokens = 0
        self.logprobs: list[TokenLogprobs] = []
        self.prompt_logprobs: Sequence[TokenLogprobs | None] = ()

    @classmethod
    def of(cls, output: Output) -> _Progress:
        progress = cls()
        progress.add(output)
        return progress

    def add(self, news: Delta | Output) -> None:
        self.text += news["text"]
        self.token_ids += news["token_ids"]
        self.finish_reason = news["finish_reason"]
        self.prompt_tokens, self.cached_tokens = news["prompt_tokens"], news["cached_tokens"]
        self.logprobs += news.get("logprobs", [])
        self.prompt_logprobs = news.get("prompt_logprobs", self.prompt_logprobs)


class _Logprobs:
    """[logprob, token id, text] a token. The text is null unless it was asked for."""

    def __init__(self, request: GenerateRequest, tokenizer: Tokenizer) -> None:
        self._with_prompt = request.wants_prompt_logprobs
        self._start = request.logprob_start_len or 0
        self._with_top = bool(request.top_logprobs_num)
        self._bytes = TokenBytes(tokenizer) if request.return_text_in_logprobs else None

    def meta(self, prompt: Prepared, progress: _Progress) -> dict[str, Any]:
        made = self._lists("output", progress.logprobs)
        if self._with_prompt and len(progress.prompt_logprobs):
            first = [None, int(prompt.input_ids[0]), self._name(int(prompt.input_ids[0]))]
            made |= self._lists("input", [token for token in progress.prompt_logprobs if token], [first])
        return made

    def _lists(self, side: str, tokens: Sequence[TokenLogprobs], first: Sequence[Any] = ()) -> dict[str, Any]:
        start = self._start if side == "input" else 0
        chosen = [*first, *(self._entry(token.token_id, token.logprob) for token in tokens)]
        made: dict[str, Any] = {f"{side}_token_logprobs": chosen[start:]}
        if self._with_top:
            tops = [*(None for _ in first), *([self._entry(*top) for top in token.top] for token in tokens)]
            made[f"{side}_top_logprobs"] = tops[start:]
        return made

    def _entry(self, token_id: int, logprob: float) -> list[Any]:
        return [logprob, token_id, self._name(token_id)]

    def _name(self, token_id: int) -> str | None:
        return token_name(self._bytes(token_id)) if self._bytes is not None else None


def _first_indexes(prepared: Sequence[Prepared]) -> list[int]:
    """Where each prompt's choices begin; prompts may have different n."""
    firsts, count = [], 0
    for prompt in prepared:
        firsts.append(count)
        count += prompt.params.n
    return firsts


def _finish_reason(progress: _Progress) -> dict[str, Any] | None:
    if progress.finish_reason == "length":
        return {"type": "length", "length": len(progress.token_ids)}
    return None if progress.finish_reason is None else {"type": progress.finish_reason}
