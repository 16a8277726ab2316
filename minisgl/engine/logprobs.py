"""Log-probabilities of tokens, under the model's own distribution: before penalties, temperature and filters.

No value is below LOGPROB_FLOOR, so that every one is a number in JSON too (OpenAI gives -9999.0 for the impossible).
Shape letters: N rows, V vocabulary, K best tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from minisgl.core import TokenLogprobs

LOGPROB_FLOOR = -9999.0
_ROWS_AT_ONCE = 64  # bounds what a long prompt allocates: a block of rows, not rows x vocabulary


class LogprobTensors(NamedTuple):
    """Of N tokens, wherever the logits are: token_ids [N], logprobs [N], and the K best of each row, best first.

    top_ids, top_logprobs: [N, K]; ids int64, logprobs float32.
    """

    token_ids: torch.Tensor
    logprobs: torch.Tensor
    top_ids: torch.Tensor
    top_logprobs: torch.Tensor

    def to_host(self) -> LogprobTensors:
        """On their way to the host: on a GPU they are there once an event recorded after this has passed."""
        return LogprobTensors(*(tensor.to("cpu", non_blocking=True) for tensor in self))

    def to_values(self, tops: Sequence[int]) -> tuple[TokenLogprobs, ...]:
        """The same as Python values, the first tops[i] best tokens for row i.."""
        ids, values = self.top_ids.tolist(), self.top_logprobs.tolist()
        chosen = zip(self.token_ids.tolist(), self.logprobs.tolist(), strict=True)
        return tuple(
            TokenLogprobs(token_id, logprob, tuple(zip(ids[row][:top], values[row][:top], strict=True)))
            for row, ((token_id, logprob), top) in enumerate(zip(chosen, tops, strict=True))
        )


def token_logprobs(logits: torch.Tensor, token_ids: torch.Tensor, top: int) -> LogprobTensors:
    """Logprobs of token_ids [N] and of the `top` best tokens under logits [N, V]; nothing is changed.

    Id -1 (a failed row) and a NaN give numbers without meaning. Allocates [N, V] float32.
    """
    token_ids = token_ids.long()
    everything = torch.log_softmax(logits, dim=-1, dtype=torch.float32)
    best = everything.topk(min(top, logits.shape[-1]), dim=-1)
    chosen = everything.gather(-1, token_ids.clamp(min=0)[:, None])[:, 0]
    return LogprobTensors(token_ids, _finite(chosen), best.indices, _finite(best.values))


def prompt_logprobs(logits: torch.Tensor, target_ids: torch.Tensor, top: int) -> tuple[TokenLogprobs, ...]:
    """Logprobs of the tokens target_ids [N] that follow N positions of a prompt with logits [N, V].

    Goes block by block, and waits for the device after each.
    """
    values: list[TokenLogprobs] = []
    for start in range(0, len(logits), _ROWS_AT_ONCE):
        block, targets = logits[start : start + _ROWS_AT_ONCE], target_ids[start : start + _ROWS_AT_ONCE]
        values += token_logprobs(block, targets, top).to_values([top] * len(block))
    return tuple(values)


def _finite(logprobs: torch.Tensor) -> torch.Tensor:
    return logprobs.nan_to_num(nan=LOGPROB_FLOOR).clamp(min=LOGPROB_FLOOR)
