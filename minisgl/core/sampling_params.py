"""What a request asks of the sampler, checked when it is made."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How to choose tokens and when to stop. Frozen: one object may be shared by many requests.

    temperature: 0 takes the arg-max of the raw logits. top_k: 0 or -1 is off. top_p, min_p: see `engine.sampler`.
    seed: None draws a fresh one for each request. max_tokens: at most this many; 0 only with prompt_logprobs.
    min_tokens: end tokens and stop_token_ids are masked, stop strings not looked for, before this many.
    stop: the text ends before the earliest of these. stop_token_ids: end the text like an end token, and hold
    under ignore_eos too. logprobs: report the chosen token and this many best ones (0: the chosen one only).
    prompt_logprobs: the same for prompt tokens. n: independent texts for one prompt.
    """

    temperature: float = 0.0
    top_k: int = -1
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    max_tokens: int = 1024
    min_tokens: int = 0
    stop: str | Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    n: int = 1
