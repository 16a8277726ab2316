"""One request on the tokenizer's side: from replies to text, stop strings, and the output that the user gets."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, TypedDict

from minisgl.core import Explanation, SamplingParams, TokenLogprobs
from minisgl.message import FinishReason, TokenReply
from minisgl.tokenizer import TextStream, Tokenizer


class Timings(TypedDict):
    """Seconds from the submission; first_token_s is None when no token came.

    queue_s: of it, waiting in the scheduler for room; None when it never ran.
    """

    queue_s: float | None
    first_token_s: float | None
    total_s: float


class Output(TypedDict, total=False):
    """What was generated for one prompt.

    text: what the tokens add to the text of the prompt, so that both joined are the text of all tokens. token_ids:
    generated, the end token and the tokens of a stop string included, which `text` leaves out.
    cached_tokens: prompt tokens that were not computed. explanation: why the others were, the fields of an
    `Explanation`; where the engine explains, and the prompt ran. logprobs, prompt_logprobs: when asked for. error: only
    when finish_reason is "error". choices: with n > 1, the output of each choice; the first one is repeated at the top.
    """

    text: str
    token_ids: list[int]
    finish_reason: FinishReason
    prompt_tokens: int
    cached_tokens: int
    timings: Timings
    explanation: dict[str, Any]
    logprobs: list[TokenLogprobs]
    prompt_logprobs: list[TokenLogprobs | None]
    error: str
    choices: list[Any]


class RequestStream:
    """Collects one request's replies. index: of its prompt. choice: of n. finish_reason: None while it runs.
    token_ids: generated so far.

    keep_text: the output is to have text and logprobs; else nobody has them but who takes them. context: the end of
    the prompt that the text depends on, see `Tokenizer.context`.
    """

    def __init__(
        self,
        uid: int,
        index: int,
        choice: int,
        prompt_len: int,
        params: SamplingParams,
        tokenizer: Tokenizer,
        end_token_ids: frozenset[int],
        keep_text: bool = True,
        context: Sequence[int] = (),
    ) -> None:
        self.uid = uid
        self.index = index
        self.choice = choice
        self.finish_reason: FinishReason | None = None
        self.prompt_len = prompt_len
        self.cached_len = 0
        self.params = params
        self.prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
        self._keep_text = keep_text
        self._hidden_last = frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else end_token_ids)
        skip = params.skip_special_tokens
        self._text_stream = TextStream(tokenizer, params.stop_strings, params.min_tokens, skip, context)
        self._text: list[str] = []
        self.token_ids: list[int] = []
        self._num_shown = 0  # of them
        self._logprobs: list[TokenLogprobs] = []
        self._error: str | None = None
        self._started = time.perf_counter()
        self._queue_s: float | None = None
        self._explanation: Explanation | None = None
        self._first_token_s: float | None = None
        self._total_s = 0.0

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    def take(self, reply: TokenReply, at: float) -> tuple[str, list[int], list[TokenLogprobs]]:
        """The text, tokens and logprobs that this reply adds to what the reader sees. May set finish_reason.

        at: when the reply came (`time.perf_counter`).
        """
        before = len(self.token_ids)
        self.token_ids.extend(reply.token_ids)
        self._note(reply, at)
        text = self._show(reply)
        token_ids = self.token_ids[before:]
        logprobs = list(reply.logprobs[: len(token_ids)]) if reply.logprobs else []
        if self._keep_text:
            self._keep(text, logprobs, reply)
        return text, token_ids, logprobs

    def gather(self, reply: TokenReply, at: float) -> None:
        """`take` for who wants the output only: text is made at the end, unless stop strings are looked for in it."""
        if reply.finish_reason is not None or reply.logprobs or reply.prompt_logprobs or self.params.stop:
            self.take(reply, at)
            return
        self.token_ids.extend(reply.token_ids)
        if self._first_token_s is None:
            self._note(reply, at)

    def output(self) -> Output:
        """The whole request, once it is over."""
        assert self.finish_reason is not None, f"uid {self.uid} still runs"
        output = Output(
            text="".join(self._text),
            token_ids=self.token_ids,
            finish_reason=self.finish_reason,
            prompt_tokens=self.prompt_len,
            cached_tokens=self.cached_len,
            timings=Timings(queue_s=self._queue_s, first_token_s=self._first_token_s, total_s=self._total_s),
        )
        if self._explanation is not None:
            output["explanation"] = self._explanation.facts()
        if self.params.logprobs is not None and self._keep_text:
            output["logprobs"] = self._logprobs
        if self.prompt_logprobs is not None:
            output["prompt_logprobs"] = list(self.prompt_logprobs)
        if self._error is not None:
            output["error"] = self._error
        return output

    def _note(self, reply: TokenReply, at: float) -> None:
        self._total_s = at - self._started
        if reply.token_ids and self._first_token_s is None:
            self._first_token_s = self._total_s
        if reply.cached_len is not None:
            self.cached_len, self._queue_s, self._explanation = reply.cached_len, reply.queue_s, reply.explanation
        self.finish_reason = reply.finish_reason
        self._error = reply.error

    def _keep(self, text: str, logprobs: list[TokenLogprobs], reply: TokenReply) -> None:
        self._text.append(text)
        self._logprobs += logprobs
        if reply.prompt_logprobs is not None:
            self.prompt_logprobs = reply.prompt_logprobs

    def _show(self, reply: TokenReply) -> str:
        """Text of the tokens not shown yet, without the one that ended it; a stop string cuts text and tokens."""
        over = reply.finish_reason is not None
        ids = self.token_ids[self._num_shown :]
        self._num_shown = len(self.token_ids)
        ended = reply.finish_reason == "stop" and reply.token_ids and ids[-1] in self._hidden_last
        delta = self._text_stream.push(ids[:-1] if ended else ids, final=over)
        if delta.stopped:
            self.finish_reason = "stop"
            del self.token_ids[delta.num_tokens :]
        return delta.text


def choices_of(output: Output) -> list[Output]:
    """The outputs of one prompt's n choices, or the output itself."""
    return output.get("choices") or [output]


def join_choices(streams: list[RequestStream]) -> Output:
    """The output of one prompt, from the streams of its n choices."""
    outputs = [stream.output() for stream in sorted(streams, key=lambda stream: stream.choice)]
    if len(outputs) == 1:
        return outputs[0]
    joined = outputs[0].copy()
    joined["choices"] = outputs
    return joined
