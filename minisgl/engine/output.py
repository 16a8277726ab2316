"""A launched batch's output: tokens that stay on the device for the next batch, and their copy to the host.

Shape letters: B requests in the batch, N rows of it that sampled.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from minisgl.core import BatchResult, TokenLogprobs
from minisgl.engine.sampler import SampleOutput
from minisgl.engine.transfer import to_device

BROKEN = -2  # in place of a token: the row's hidden state is not finite
NO_TOKEN_ERROR = "no token could be sampled: the logits hold NaN or infinity, or every token is masked"
PromptLogprobs = tuple[tuple[TokenLogprobs, ...], ...]


class DeviceOutput:
    """What one batch gave; implements `core.BatchOutput`.

    next_tokens: [B] int32 where the samples are, -1 where nothing was sampled or the row failed, BROKEN where its KV
    cannot be trusted: the next batch reads its tokens there. The copy to the host starts at once, so that `result`
    waits for this batch and no later one.
    """

    def __init__(
        self, next_tokens: torch.Tensor, rows: Sequence[int], samples: SampleOutput, prompt_logprobs: PromptLogprobs
    ) -> None:
        """rows: where in the batch each of the N samples belongs. prompt_logprobs: as in `BatchResult`."""
        self.next_tokens = next_tokens
        self._rows = frozenset(rows)
        self._prompt_logprobs = prompt_logprobs
        self._logprob_tops = {rows[i]: top for i, top in samples.logprob_tops.items()}
        self._host_tokens = next_tokens.to("cpu", non_blocking=True)
        self._host_logprobs = samples.logprobs.to_host() if samples.logprobs is not None else None
        self._copied = torch.cuda.current_stream().record_event() if next_tokens.is_cuda else None
        self._result: BatchResult | None = None

    @classmethod
    def from_samples(
        cls,
        num_reqs: int,
        rows: Sequence[int],
        samples: SampleOutput | None,
        prompt_logprobs: PromptLogprobs = (),
        broken: torch.Tensor | None = None,
    ) -> DeviceOutput:
        """The output of B = num_reqs requests, of which `rows` sampled (None: none did).

        broken: [B] bool, rows whose last hidden state is not finite. They fail even if they sampled nothing, for their
        KV must not be kept for others.
        """
        device = broken.device if broken is not None else torch.device("cpu")
        samples = samples or SampleOutput(torch.empty(0, dtype=torch.int32, device=device))
        assert len(rows) == len(samples.tokens), f"{len(rows)} rows for {len(samples.tokens)} samples"
        next_tokens = samples.tokens.new_full((num_reqs,), -1)
        next_tokens[to_device(rows, torch.int64, next_tokens.device)] = samples.tokens
        if broken is not None:
            next_tokens.masked_fill_(broken, BROKEN)
        return cls(next_tokens, rows, samples, prompt_logprobs)

    def result(self) -> BatchResult:
        """The batch's result on the host, made once; waits until it is there."""
        if self._result is None:
            if self._copied is not None:
                self._copied.synchronize()
            tokens = self._host_tokens.numpy().copy()
            failed = [row for row, token in enumerate(tokens) if token == BROKEN or (token < 0 and row in self._rows)]
            tokens[failed] = -1
            errors = dict.fromkeys(failed, NO_TOKEN_ERROR)
            self._result = BatchResult(tokens, self._logprobs(errors), self._prompt_logprobs, errors)
        return self._result

    def _logprobs(self, errors: dict[int, str]) -> tuple[TokenLogprobs | None, ...]:
        if self._host_logprobs is None:
            return ()
        values = self._host_logprobs.to_values(list(self._logprob_tops.values()))
        by_row = dict(zip(self._logprob_tops, values, strict=True))
        return tuple(None if row in errors else by_row.get(row) for row in range(len(self.next_tokens)))


class FailedOutput:
    """A batch that could not be computed: every request of it fails with `message`. Implements `core.BatchOutput`.

    next_tokens: [B] int32 on the host, all -1.
    """

    def __init__(self, num_reqs: int, message: str) -> None:
        self.next_tokens = torch.full((num_reqs,), -1, dtype=torch.int32)
        self._message = message

    def result(self) -> BatchResult:
        """No tokens, and the error for every row."""
        rows = range(len(self.next_tokens))
        tokens = np.full(len(rows), -1, dtype=np.int32)
        return BatchResult(tokens, errors=dict.fromkeys(rows, self._message))
