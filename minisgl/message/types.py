"""What crosses between the tokenizer side and the scheduler. Frozen; every message names its request by `uid`.

A question has a uid too, from the same numbers, so that its answer finds the way back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from minisgl.core import Explanation, SamplingParams, TokenLogprobs
from minisgl.message.questions import Answer, Question
from minisgl.utils.arrays import Int32Array

FinishReason = Literal["stop", "length", "abort", "error"]


@dataclass(frozen=True, slots=True, eq=False)
class UserMsg:
    """A new request. input_ids: [N] int32, N >= 1, owned by the receiver. seed: never None here.

    cache_salt: only requests of the same salt share cached prefixes; "" is the public one.
    priority: larger goes first where the policy is "priority", and is kept longer where eviction is.
    explain: answer with the explanation as soon as it is admitted, before the first token.
    """

    uid: int
    input_ids: Int32Array
    sampling_params: SamplingParams
    seed: int
    cache_salt: str = ""
    priority: int = 0
    explain: bool = False


@dataclass(frozen=True, slots=True)
class AbortMsg:
    """Stop this request and answer with finish_reason "abort"; unknown or finished uids are ignored.

    Of a question that is being worked on: nobody waits for its answer, and there will be none.
    """

    uid: int


@dataclass(frozen=True, slots=True)
class FinishMsg:
    """The tokenizer side found a stop string: keep `num_tokens` generated tokens, forget what came later. No reply."""

    uid: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class ShutdownMsg:
    """End the loop. Requests still open are answered with finish_reason "abort"."""


RequestMsg = UserMsg | AbortMsg | FinishMsg | Question[Any] | ShutdownMsg


class TokenReply(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """News of one request.

    token_ids: generated since the last reply, the end token included. finish_reason: None while it runs.
    logprobs: one for each of token_ids, if asked for. cached_len: prompt tokens that were not computed; it, queue_s
    (seconds from arrival to admission; None if it never ran), prompt_logprobs (None first, then one for each later
    prompt token) and the explanation, where there are any, come with the first reply. error: what went wrong, with
    finish_reason "error".

    A Struct, as one is made, sent and read for every token: a NamedTuple takes three times as long. It cannot be part
    of a cycle, so the search for them need not know of it.
    """

    uid: int
    token_ids: tuple[int, ...] = ()
    finish_reason: FinishReason | None = None
    logprobs: tuple[TokenLogprobs, ...] = ()
    cached_len: int | None = None
    queue_s: float | None = None
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
    error: str | None = None
    explanation: Explanation | None = None


class NextTokens(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One more token of each of these requests, and nothing else to say of them: most of what a step of decodes tells.

    uids, token_ids: as many of both.
    """

    uids: list[int]
    token_ids: list[int]

    def each(self) -> Iterator[TokenReply]:
        """The same, request by request."""
        return map(TokenReply, self.uids, zip(self.token_ids, strict=True))


TokenNews = TokenReply | NextTokens
Reply = TokenNews | Answer[Any]
