"""The tokenizer's side of an engine: prompts to requests, replies to text. `LLM` and `AsyncLLM` share it."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypedDict

from minisgl.core import Limits, SamplingParams, TokenLogprobs
from minisgl.core.batch import NO_IDS, Int32Array
from minisgl.core.seeds import choice_seed
from minisgl.llm.encoder import Encoder, Messages, Prompt, check_salt
from minisgl.llm.link import Link
from minisgl.llm.router import Arrival, EngineDied, Sink
from minisgl.llm.stats import Stats
from minisgl.llm.stream import Output, RequestStream, join_choices
from minisgl.message import EngineStats, FinishReason, ProbeMsg, PurgeMsg, StatsMsg, TokenReply, UserMsg
from minisgl.tokenizer import Tokenizer


class Delta(TypedDict, total=False):
    """A step forward of one prompt.

    index: which prompt. choice: which of its n. text, token_ids: new ones. finish_reason: None while the choice runs.
    logprobs: one for each of token_ids, if asked for. prompt_tokens, cached_tokens: known from the first delta on.
    queue_s (as in an output's timings) and prompt_logprobs, if asked for: in a choice's first delta. output: the
    prompt's whole output, in its very last delta only. Deltas of a choice joined are its output.
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
    prompt_logprobs: list[TokenLogprobs | None]
    output: Output


@dataclass(frozen=True, eq=False)
class Prepared:
    """A prompt that can run: tokenized and checked.

    cache_salt: whose cached prefixes it may use and leave. priority: see `UserMsg`.
    """

    input_ids: Int32Array
    params: SamplingParams
    cache_salt: str = ""
    priority: int = 0


class Probe(NamedTuple):
    """How many tokens a prompt has, and how many of them a request would find cached: never all of them."""

    prompt_tokens: int
    cached_tokens: int


class Client:
    """Makes requests and follows them. Safe to use from several threads. encoder: of prompts to token ids."""

    def __init__(self, link: Link, tokenizer: Tokenizer, limits: Limits, end_token_ids: frozenset[int]) -> None:
        self.tokenizer = tokenizer
        self.limits = limits
        self.encoder = Encoder(tokenizer, limits)
        self.stats = Stats()
        self._link = link
        self._end_token_ids = end_token_ids
        self._uids = itertools.count()

    def prepare(
        self, prompt: Prompt, params: SamplingParams | None, cache_salt: str = "", priority: int = 0
    ) -> Prepared:
        """Tokenize a text, take token ids as they are, and check both. ValueError when it can never run."""
        return self._checked(self.encoder.ids(prompt), params, cache_salt, priority)

    def prepare_chat(
        self,
        messages: Messages,
        params: SamplingParams | None,
        template_kwargs: Mapping[str, Any],
        cache_salt: str = "",
        priority: int = 0,
    ) -> Prepared:
        """The same for a conversation, by the model's chat template."""
        return self._checked(self.encoder.chat_ids(messages, template_kwargs), params, cache_salt, priority)

    def submission(self, prepared: Sequence[Prepared], keep_text: bool = True) -> Submission:
        """Requests for all of them, to be started together. keep_text: outputs have text and logprobs, as deltas do."""
        messages, streams = [], []
        for index, prompt in enumerate(prepared):
            params = _for_engine(prompt.params)
            for choice, seed in enumerate(_seeds(prompt.params)):
                uid = next(self._uids)
                messages.append(UserMsg(uid, prompt.input_ids, params, seed, prompt.cache_salt, prompt.priority))
                streams.append(self._stream(uid, index, choice, prompt, keep_text))
        return Submission(self._link, self.stats, messages, streams)

    def ask_stats(self, recount: bool = False) -> Future[EngineStats]:
        """Sizes and totals of scheduler and cache. recount: check all of them first; what is wrong ends the engine."""
        return self._link.ask(StatsMsg(next(self._uids), recount))

    def ask_cached(self, input_ids: Int32Array, cache_salt: str = "") -> Future[int]:
        """How many tokens of this prompt would not have to be computed now. Nothing is refreshed by the question.

        ValueError for a prompt that can never run.
        """
        check_salt(cache_salt)
        self.limits.check_ids(input_ids)
        self.limits.check_len(len(input_ids))
        return self._link.ask(ProbeMsg(next(self._uids), input_ids, cache_salt))

    def purge_cache(self, prefix: Int32Array = NO_IDS, cache_salt: str | None = None) -> Future[int]:
        """From the answer on, nothing that was cached before and begins with `prefix` is matched.

        cache_salt: whose; None: everybody's. Running requests keep what they hold. The answer: tokens freed at once.
        """
        if cache_salt is not None:
            check_salt(cache_salt)
        return self._link.ask(PurgeMsg(next(self._uids), prefix, cache_salt))

    def _checked(
        self, input_ids: Int32Array, params: SamplingParams | None, cache_salt: str, priority: int
    ) -> Prepared:
        (params,) = each_params(params, 1)
        check_salt(cache_salt)
        self.limits.check(input_ids, params)
        self.limits.check_priority(priority)
        return Prepared(input_ids, params, cache_salt, priority)

    def _stream(self, uid: int, index: int, choice: int, prompt: Prepared, keep_text: bool) -> RequestStream:
        num, params = len(prompt.input_ids), prompt.params
        return RequestStream(uid, index, choice, num, params, self.tokenizer, self._end_token_ids, keep_text)


class Submission:
    """Requests that are started together, until the last of them is over."""

    def __init__(self, link: Link, stats: Stats, messages: Sequence[UserMsg], streams: Sequence[RequestStream]) -> None:
        self._link = link
        self._stats = stats
        self._messages = messages
        self._open = {stream.uid: stream for stream in streams}
        self._streams: dict[int, list[RequestStream]] = {}
        for stream in streams:
            self._streams.setdefault(stream.index, []).append(stream)

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
        for reply in arrival.replies:
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

    def abort(self) -> None:
        """Stop what still runs; each request's last reply, with finish_reason "abort", is still to be taken."""
        for uid in list(self._open):
            self._link.abort(uid)

    def close(self) -> None:
        """Stop what still runs, and take nothing more."""
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
        if found_here:
            self._link.finish(stream.uid, stream.num_tokens)
        siblings = self._streams[stream.index]
        if any(sibling.finish_reason is None for sibling in siblings):
            return None
        output = join_choices(siblings)
        self._stats.count(output)
        return output


def each_params(params: SamplingParams | Sequence[SamplingParams] | None, num_prompts: int) -> list[SamplingParams]:
    """One for each prompt: the same one for all, or a list of as many. ValueError when it is anything else."""
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * num_prompts
    if not isinstance(params, Sequence) or not all(isinstance(each, SamplingParams) for each in params):
        raise ValueError(f"sampling_params are SamplingParams, one or a list of them, not {type(params).__name__}")
    if len(params) != num_prompts:
        raise ValueError(f"{len(params)} sampling_params were given for {num_prompts} prompts")
    return list(params)


def _for_engine(params: SamplingParams) -> SamplingParams:
    """Without stop strings: they are found here, and the engine would have to read and check them for every choice."""
    return replace(params, stop=()) if params.stop else params


def _seeds(params: SamplingParams) -> list[int]:
    """One for each choice; a request without a seed gets a fresh one."""
    seed = secrets.randbits(63) if params.seed is None else params.seed
    return [choice_seed(seed, choice) for choice in range(params.n)]
