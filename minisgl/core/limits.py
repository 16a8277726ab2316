"""What a request may ask for at most, checked before anything is computed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minisgl.core.errors import FieldError
from minisgl.core.sampling_params import SamplingParams
from minisgl.utils.arrays import Int32Array
from minisgl.utils.math import num_bytes

MIN_PRIORITY, MAX_PRIORITY = -(2**31), 2**31 - 1


class ContextLengthError(ValueError):
    """The prompt is longer than the context or the KV pool, so it can never run here."""


@dataclass(frozen=True)
class Limits:
    """max_seq_len: the context, prompt and generated tokens together. pool_len: tokens that the KV pool holds.

    heeds_priority: whether the priority of a request changes anything here. explains: whether it is said why prompts
    are computed.
    """

    vocab_size: int
    max_seq_len: int
    pool_len: int
    heeds_priority: bool = False
    explains: bool = True

    @property
    def max_model_len(self) -> int:
        """Tokens of the longest prompt that can run: the context, or the pool where that is smaller."""
        return min(self.max_seq_len, self.pool_len)

    def check(self, input_ids: Int32Array, params: SamplingParams) -> None:
        """Raise ValueError, with names and numbers, when this request can never run (ContextLengthError: too long)."""
        self.check_ids(input_ids)
        self.check_len(len(input_ids), min(params.max_tokens, 1))
        params.validate_vocab(self.vocab_size)

    def check_priority(self, priority: int) -> None:
        """Raise FieldError for a priority that is none, and for one other than 0 where it would change nothing."""
        if isinstance(priority, bool) or not isinstance(priority, int) or not MIN_PRIORITY <= priority <= MAX_PRIORITY:
            raise FieldError("priority", f"priority={priority!r} is not an integer of 32 bits")
        if priority and not self.heeds_priority:
            raise FieldError(
                "priority",
                f"priority={priority} is not supported: it changes nothing without --policy priority or"
                " --eviction priority (which needs --cache-type radix)",
            )

    def check_explains(self) -> None:
        """Raise ValueError where nothing is explained."""
        if not self.explains:
            raise ValueError("nothing is explained here: the engine was started with --no-explain (explain=False)")

    def check_len(self, prompt_len: int, min_new: int = 0) -> None:
        """Raise ContextLengthError when a prompt of so many tokens, and min_new more, can never run."""
        if prompt_len + min_new > self.max_seq_len:
            raise ContextLengthError(
                f"the prompt has {prompt_len} tokens, but the context length is {self.max_seq_len} tokens"
                + (f" and the answer needs at least {min_new}" if min_new else "")
            )
        if prompt_len > self.pool_len:
            raise ContextLengthError(f"the prompt has {prompt_len} tokens, but the KV pool holds only {self.pool_len}")

    def check_text(self, text: str, longest_token: int) -> None:
        """Raise ContextLengthError, before it is tokenized, when a text is too long whatever its tokens are.

        longest_token: bytes of the vocabulary's longest token. The bound is loose, since a tokenizer may also
        shrink a text first (to composed characters, say).
        """
        at_least = num_bytes(text) // (4 * longest_token)
        if at_least > self.max_seq_len:
            raise ContextLengthError(
                f"the prompt has {len(text)} characters, so at least {at_least} tokens,"
                f" but the context length is {self.max_seq_len} tokens"
            )

    def max_device_len(self, prompt_len: int, params: SamplingParams) -> int:
        """Tokens that the request may grow to: what does not fit the context or the pool is cut, never refused.

        The last generated token needs no slot, so a pool of N slots holds a text of N + 1 tokens.
        """
        return min(prompt_len + params.max_tokens, self.max_seq_len, self.pool_len + 1)

    def check_ids(self, input_ids: Int32Array, what: str = "prompt") -> None:
        """Raise ValueError for no tokens at all, and for one outside the vocabulary."""
        if len(input_ids) == 0:
            raise ValueError(f"empty {what}: at least one token is needed")
        low, high = int(np.min(input_ids)), int(np.max(input_ids))
        if low < 0 or high >= self.vocab_size:
            bad = low if low < 0 else high
            raise ValueError(f"token id {bad} is outside the vocabulary of {self.vocab_size} tokens")
