"""A launched batch's output: tokens that stay on the device for the next batch, and their copy to the host.

Shape letters: B requests in the batch, N rows of it that sampled.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from types import MappingProxyType

import numpy as np
import torch

from minisgl.core import BatchResult, TokenLogprobs
from minisgl.engine.logprobs import LogprobTensors
from minisgl.kernel import BROKEN

NO_TOKEN_ERROR = "no token could be sampled: the logits hold NaN or infinity, or every token is masked"
EMPTY: Mapping[int, int] = MappingProxyType({})
PromptLogprobs = tuple[tuple[TokenLogprobs, ...], ...]


class DeviceOutput:
    """What one batch gave; implements `core.BatchOutput`.

    next_tokens: [B] int32 where the samples are, -1 where a row failed, BROKEN where its KV cannot be trusted.
    The copy to the host starts at once: `result` waits for this batch and no later one, and a later one may overwrite
    the tokens on a device. copied: passes when all that the batch was given has been read; None on a CPU.
    """

    def __init__(
        self,
        next_tokens: torch.Tensor,
        sampled: Container[int],
        logprobs: LogprobTensors | None = None,
        logprob_tops: Mapping[int, int] = EMPTY,
        prompt_logprobs: PromptLogprobs = (),
    ) -> None:
        """sampled: rows of the batch that should have a token. logprobs: of the rows in logprob_tops, which says how
        many best tokens each asked for. prompt_logprobs: as in `BatchResult`."""
        self._num_rows = len(next_tokens)
        self._sampled = sampled
        self._prompt_logprobs = prompt_logprobs
        self._logprob_tops = logprob_tops
        self._host_tokens = _to_host(next_tokens)
        self._host_logprobs = logprobs.to_host() if logprobs is not None else None
        self.copied = torch.cuda.current_stream().record_event() if next_tokens.is_cuda else None
        self._result: BatchResult | None = None

    def result(self) -> BatchResult:
        """The batch's result on the host, made once; waits until it is there."""
        if self._result is None:
            if self.copied is not None:
                self.copied.synchronize()
            tokens = self._host_tokens.numpy()
            below = np.flatnonzero(tokens < 0).tolist()
            failed = [row for row in below if tokens[row] == BROKEN or row in self._sampled]
            tokens[below] = -1
            errors = dict.fromkeys(failed, NO_TOKEN_ERROR)
            self._result = BatchResult(tokens, self._logprobs(errors), self._prompt_logprobs, errors)
        return self._result

    def _logprobs(self, errors: dict[int, str]) -> tuple[TokenLogprobs | None, ...]:
        if self._host_logprobs is None:
            return ()
        values = self._host_logprobs.to_values(list(self._logprob_tops.values()))
        by_row = dict(zip(self._logprob_tops, values, strict=True))
        return tuple(None if row in errors else by_row.get(row) for row in range(self._num_rows))


def _to_host(tokens: torch.Tensor) -> torch.Tensor:
    """A copy of its own, on its way."""
    return tokens.to("cpu", non_blocking=True) if tokens.is_cuda else tokens.clone()


class FailedOutput:
    """A batch that could not be computed: every request of it fails with `message`. Implements `core.BatchOutput`."""

    def __init__(self, num_reqs: int, message: str) -> None:
        self._num_reqs = num_reqs
        self._message = message

    def result(self) -> BatchResult:
        """No tokens, and the error for every row."""
        tokens = np.full(self._num_reqs, -1, dtype=np.int32)
        return BatchResult(tokens, errors=dict.fromkeys(range(self._num_reqs), self._message))
