"""Requests on their way: from the engine's replies to deltas and outputs, until the last of them is over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypedDict

from minisgl.core import TokenLogprobs
from minisgl.llm.link import Link
from minisgl.llm.router import Arrival, EngineDied, Sink
from minisgl.llm.stats import Stats
from minisgl.llm.stream import Output, RequestStream, join_choices
from minisgl.message import FinishReason, TokenReply, UserMsg


class Delta(TypedDict, total=False):
    """A step forward of one prompt.

    index: which prompt. choice: which of its n. text, token_ids: new ones. finish_reason: None while the choice runs.
    logprobs: one for each of token_ids, if asked for. prompt_tokens, cached_tokens: known from the first delta on.
    queue_s (as in an output's timings), and the explanation if there is one: in a choice's first delta, which is made
    before its first token if it was prepared so. prompt_logprobs, if asked for: in the first one that has a token.
    output: the prompt's whole output, in its very last delta only. Deltas of a choice joined are its output.
    """

    index: int
    choice: int
    text: str
    token_ids: list[int]
    finish_reason: FinishReason | None
    logprobs: list[TokenLogprobs]
    prompt_tokens: int
    cached_tokens: int
    queue_s: float | None
    explanation: dict[str, Any]
    prompt_logprobs: list[TokenLogprobs | None]
    output: Output


class Submission:
    """Requests that are started together, until the last of them is over."""

    def __init__(self, link: Link, stats: Stats, messages: Sequence[UserMsg], streams: Sequence[RequestStream]) -> None:
        self._link = link
        self._stats = stats
        self._messages = messages
        self._open = {stream.uid: stream for stream in streams}
        # Of those that are open, for `gather`: where nothing is looked for in the text.
        self._token_ids = {stream.uid: stream.token_ids for stream in streams if not stream.params.stop}
        self._streams: dict[int, list[RequestStream]] = {}
        for stream in streams:
            self._streams.setdefault(stream.index, []).append(stream)

    @property
    def uids(self) -> tuple[int, ...]:
        """Of its requests: choice by choice, prompt by prompt."""
        return tuple(message.uid for message in self._messages)

    @property
    def is_over(self) -> bool:
        return not self._open

    def start(self, sink: Sink) -> None:
        """Send the requests; what `sink` gets, in the link's thread, is for `take` or `gather`."""
        self._link.submit(self._messages, sink)

    def take(self, reply: TokenReply, at: float) -> Delta | None:
        """What a reply adds, which came at that time; None when its request was over already.

        EngineDied when the engine has.
        """
        stream = self._open.get(reply.uid)
        if stream is None:
            return None
        self._check_engine(reply)
        text, token_ids, logprobs = stream.take(reply, at)
        delta: Delta = {  # as a display: a third of what the call costs
            "index": stream.index,
            "choice": stream.choice,
            "text": text,
            "token_ids": token_ids,
            "finish_reason": stream.finish_reason,
            "prompt_tokens": stream.prompt_len,
            "cached_tokens": stream.cached_len,
        }
        if stream.params.logprobs is not None:
            delta["logprobs"] = logprobs
        if reply.cached_len is not None:
            delta["queue_s"] = reply.queue_s
            if reply.explanation is not None:
                delta["explanation"] = reply.explanation.facts()
        if reply.prompt_logprobs is not None:
            delta["prompt_logprobs"] = list(reply.prompt_logprobs)
        if stream.finish_reason is not None:
            output = self._end(stream, found_here=reply.finish_reason is None)
            if output is not None:
                delta["output"] = output
        return delta

    def gather(self, arrival: Arrival) -> dict[int, Output]:
        """`take` for who wants no deltas: the outputs of the prompts that are over now, by index."""
        outputs = {}
        for reply in self._without_easy(arrival):
            stream = self._open.get(reply.uid)
            if stream is None:
                continue
            self._check_engine(reply)
            stream.gather(reply, arrival.at)
            if stream.finish_reason is not None:
                output = self._end(stream, found_here=reply.finish_reason is None)
                if output is not None:
                    outputs[stream.index] = output
        return outputs

    def _without_easy(self, arrival: Arrival) -> Iterator[TokenReply]:
        """The replies that take more than putting a token to those before, which is done here for the others."""
        token_ids = self._token_ids
        for reply in arrival.replies:
            if isinstance(reply, TokenReply):
                yield reply
                continue
            for uid, token_id in zip(reply.uids, reply.token_ids, strict=True):
                if uid in token_ids:
                    token_ids[uid].append(token_id)
                else:
                    yield TokenReply(uid, (token_id,))

    def abort(self) -> None:
        """Stop what still runs; each request's last reply, with finish_reason "abort", is still to be taken."""
        for uid in list(self._open):
            self._link.abort(uid)

    def close(self) -> None:
        """Stop what still runs, and take nothing more."""
        self._token_ids.clear()
        for uid in list(self._open):
            del self._open[uid]
            self._link.forget(uid)
            self._link.abort(uid)

    def _check_engine(self, reply: TokenReply) -> None:
        if reply.finish_reason == "error" and self._link.error is not None:
            raise EngineDied(reply.error) from self._link.error

    def _end(self, stream: RequestStream, found_here: bool) -> Output | None:
        """The output of its prompt, if this was the last of its choices."""
        del self._open[stream.uid]
        self._token_ids.pop(stream.uid, None)
        if found_here:
            self._link.finish(stream.uid, stream.num_tokens)
        siblings = self._streams[stream.index]
        if any(sibling.finish_reason is None for sibling in siblings):
            return None
        output = join_choices(siblings)
        self._stats.count(output)
        return output
