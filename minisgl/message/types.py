"""What crosses between the tokenizer side and the scheduler. Frozen; every message names its request by `uid`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from minisgl.core import SamplingParams, TokenLogprobs
from minisgl.core.batch import Int32Array

FinishReason = Literal["stop", "length", "abort", "error"]


@dataclass(frozen=True, slots=True, eq=False)
class UserMsg:
    """A new request. input_ids: [N] int32, N >= 1, owned by the receiver. seed: never None here."""

    uid: int
    input_ids: Int32Array
    sampling_params: SamplingParams
    seed: int


@dataclass(frozen=True, slots=True)
class AbortMsg:
    """Stop this request and answer with finish_reason "abort"; unknown or finished uids are ignored."""

    uid: int


@dataclass(frozen=True, slots=True)
class FinishMsg:
    """The tokenizer side found a stop string: keep `num_tokens` generated tokens, forget what came later. No reply."""

    uid: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class ShutdownMsg:
    """End the loop. Requests still open are answered with finish_reason "abort"."""


RequestMsg = UserMsg | AbortMsg | FinishMsg | ShutdownMsg


@dataclass(frozen=True, slots=True)
class TokenReply:
    """News of one request.

    token_ids: generated since the last reply, the end token included. finish_reason: None while it runs.
    logprobs: one for each of token_ids, if asked for. cached_len: prompt tokens that were not computed; it and
    prompt_logprobs (None first, then one for each later prompt token) come with the first reply.
    error: what went wrong, with finish_reason "error".
    """

    uid: int
    token_ids: tuple[int, ...] = ()
    finish_reason: FinishReason | None = None
    logprobs: tuple[TokenLogprobs, ...] = ()
    cached_len: int | None = None
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
    error: str | None = None
