"""One forward pass as the loop sees it: a `ForwardInput` in, a `BatchOutput` out, and a `BatchResult` once it is done.

Shape letters: B requests in the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from minisgl.core.batch import Batch
from minisgl.utils.arrays import Int32Array


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """A token, its log-probability under the model's own (unfiltered) distribution, and the best alternatives.

    top: (token id, logprob) pairs, best first, as many as were asked for.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class BatchResult:
    """What one batch produced, on the host, row by row like `Batch.reqs`.

    next_tokens: [B] int32, -1 where the row failed; of a row that samples nothing it says nothing.
    logprobs: of the sampled token, None where not asked for; empty when no row asked.
    prompt_logprobs: for prompt tokens [cached_len + 1, min(device_len + 1, prompt_len)) of the row; likewise.
    errors: why a row failed (its token is then -1), by row. device_s: when the device began and ended the batch
    (`time.perf_counter`), if it was launched to be timed.
    """

    next_tokens: Int32Array
    logprobs: tuple[TokenLogprobs | None, ...] = ()
    prompt_logprobs: tuple[tuple[TokenLogprobs, ...], ...] = ()
    errors: dict[int, str] = field(default_factory=dict)
    device_s: tuple[float, float] | None = None


class BatchOutput(Protocol):
    """A launched batch. Its tokens may still be on the device; `result` waits for them."""

    def result(self) -> BatchResult: ...


@dataclass(frozen=True, slots=True, eq=False)
class ForwardInput:
    """One launch. Launches are made in order: rows with a `prev_row` begin with a token of the one before.

    is_timed: whether the result shall say when the device worked for it.
    """

    batch: Batch
    is_timed: bool = False


Forward = Callable[[ForwardInput], BatchOutput]
