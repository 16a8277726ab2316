"""Turns logits into the next tokens. Without state: every token follows from the arguments alone.

Shape letters: N rows that sample, V vocabulary, M rows of one group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import torch

from minisgl.core import Req
from minisgl.core.seeds import uniform
from minisgl.engine.draws import draw
from minisgl.engine.filters import drop_mask
from minisgl.engine.logprobs import LogprobTensors, token_logprobs
from minisgl.engine.penalties import edit_logits, is_edited
from minisgl.engine.settings import Rows, SettingsTable, clipped_temperature
from minisgl.engine.transfer import to_device
from minisgl.kernel import NUM_SETTINGS, best_tokens, triton

_ROWS_AT_ONCE = {"cpu": 16, "cuda": 256}  # what stays in a CPU's cache; on a GPU few launches count more


@dataclass(frozen=True, slots=True, eq=False)
class SampleOutput:
    """What was sampled, still on the device.

    tokens: [N] int32, -1 for a row whose logits hold NaN or leave no token. logprob_tops: how many best tokens each
    row that wants logprobs asks for, by row in ascending order; logprobs: of these rows, with the most asked for.
    """

    tokens: torch.Tensor
    logprobs: LogprobTensors | None = None
    logprob_tops: Mapping[int, int] = field(default_factory=dict)


class _Method(Enum):
    GREEDY = 0
    PLAIN = 1  # temperature only
    FILTERED = 2  # top_k, top_p, min_p

    @classmethod
    def of(cls, req: Req) -> _Method:
        if req.sampling_params.is_greedy:
            return cls.GREEDY
        return cls.FILTERED if req.sampling_params.has_filters else cls.PLAIN


class Sampler:
    """Chooses the next token of each row as its request's `SamplingParams` ask.

    The order is that of Hugging Face: edits of the logits (see `penalties`), temperature, top_k, top_p, min_p (see
    `filters`), then a draw by (seed, num_generated) (see `draws`). Greedy rows take the best token after the edits, the
    lowest id of equal ones. What other rows ask for never matters.

    On a GPU two kernels do everything but edits and log-probabilities (`choose`), so that a CUDA graph can hold them.
    Elsewhere torch does all of it. Logits may have any floating dtype.
    """

    def __init__(self, vocab_size: int, device: torch.device | str) -> None:
        self.vocab_size = vocab_size
        self.device = torch.device(device)
        self.has_kernels = self.device.type == "cuda" and triton.in_use()
        self._captured = SettingsTable(vocab_size)  # of batches that a graph samples
        self._sampled = SettingsTable(
            vocab_size
        )  # of rows that `sample` does: some of those batches', or all of others

    def warm_up(self, dtype: torch.dtype) -> None:
        """Compile what requests would otherwise wait for. dtype: of the model's logits; edited ones are float32."""
        if self.has_kernels:
            settings = torch.zeros(1, NUM_SETTINGS, dtype=torch.float64, device=self.device)
            for each in {dtype, torch.float32}:
                self.choose(torch.zeros(1, self.vocab_size, dtype=each, device=self.device), settings)

    def settings(self, reqs: Sequence[Req]) -> Rows:
        """[N, S] float64: what `choose` reads of each request of a batch. Valid until the next call."""
        return self._captured.rows(reqs)

    def choose(self, logits: torch.Tensor, settings: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """[N] int32 tokens as in `SampleOutput`, without edits. Never waits; a CUDA graph may hold it.

        logits: [N, V], not changed. settings: those of `settings` on the device, flat or not, of N rows or more. out:
        where the tokens are wanted. Only where `has_kernels`.
        """
        tokens: torch.Tensor = triton.operation("sampling", "sample_tokens")(logits, settings, out)
        return tokens

    def needs_more(self, reqs: Sequence[Req]) -> list[int]:
        """Rows of a batch for which `choose` is not all, ascending."""
        return _needing_more(self._captured, reqs)

    def sample(
        self, logits: torch.Tensor, reqs: Sequence[Req], prev_tokens: torch.Tensor | None = None
    ) -> SampleOutput:
        """logits: [N, V] of the last position of each request; not changed. N may be 0.

        prev_tokens: [N] integers on the device, the last token of each request with prev_row >= 0 (others: anything).
        On a GPU the host does not wait, unless there are no kernels and a row has top_p.
        """
        expected = (len(reqs), self.vocab_size)
        assert logits.shape == expected, f"logits {tuple(logits.shape)}, {expected=}"
        assert logits.dtype.is_floating_point, f"logits are {logits.dtype}"
        if self.has_kernels:
            return self._sample_by_kernels(logits, reqs, prev_tokens)
        tokens = torch.empty(len(reqs), dtype=torch.int32, device=self.device)
        for method, rows in _groups(reqs, _ROWS_AT_ONCE[self.device.type]):
            group = [reqs[row] for row in rows]
            last_tokens = None if prev_tokens is None else _take(prev_tokens, rows)
            tokens[_index(rows, self.device)] = _choose(method, _take(logits, rows), group, last_tokens)
        return _with_logprobs(tokens, logits, reqs, range(len(reqs)))

    def _sample_by_kernels(
        self, logits: torch.Tensor, reqs: Sequence[Req], prev_tokens: torch.Tensor | None
    ) -> SampleOutput:
        """`sample`, rows with edits once more from their edited logits."""
        settings = to_device(self._sampled.rows(reqs), torch.float64, self.device)
        tokens = self.choose(logits, settings)
        more = _needing_more(self._sampled, reqs)
        rows = [row for row in more if is_edited(reqs[row])]
        for start in range(0, len(rows), _ROWS_AT_ONCE["cuda"]):
            part = rows[start : start + _ROWS_AT_ONCE["cuda"]]
            index = to_device(part, torch.int64, self.device)
            last_tokens = None if prev_tokens is None else prev_tokens[index]
            edited = logits[index].float()
            edit_logits(edited, [reqs[row] for row in part], last_tokens)
            tokens[index] = self.choose(edited, settings[index])
        return _with_logprobs(tokens, logits, reqs, more)


def _needing_more(table: SettingsTable, reqs: Sequence[Req]) -> list[int]:
    """Rows with edits now, or with log-probabilities."""
    rows = table.special(reqs)
    return [row for row in rows if reqs[row].sampling_params.logprobs is not None or is_edited(reqs[row])]


def _groups(reqs: Sequence[Req], max_rows: int) -> Iterator[tuple[_Method, list[int]]]:
    """Rows that are computed together: those with one method; greedy ones need no temporary tensors, so all at once."""
    methods = [_Method.of(req) for req in reqs]
    for method in _Method:
        rows = [row for row, its_method in enumerate(methods) if its_method is method]
        size = max(len(rows), 1) if method is _Method.GREEDY else max_rows
        for start in range(0, len(rows), size):
            yield method, rows[start : start + size]


def _index(rows: Sequence[int], device: torch.device) -> slice | torch.Tensor:
    """Ascending rows as an index: a slice, which copies nothing, if they are neighbours."""
    if rows[-1] - rows[0] == len(rows) - 1:
        return slice(rows[0], rows[-1] + 1)
    return to_device(rows, torch.int64, device)


def _take(tensor: torch.Tensor, rows: Sequence[int]) -> torch.Tensor:
    return tensor[_index(rows, tensor.device)]


def _choose(
    method: _Method, logits: torch.Tensor, reqs: Sequence[Req], last_tokens: torch.Tensor | None
) -> torch.Tensor:
    """[M] int32 tokens, -1 where no logit of the row is best: NaN, infinity, or every token masked."""
    if any(is_edited(req) for req in reqs):
        logits = logits.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
        edit_logits(logits, reqs, last_tokens)
    if method is _Method.GREEDY:
        return best_tokens(logits)
    best, tokens = _draw(logits.float(), reqs, filtered=method is _Method.FILTERED)
    return tokens.where(best.isfinite(), -1).int()


def _draw(logits: torch.Tensor, reqs: Sequence[Req], filtered: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The best score [M] of each row, and the token [M] drawn from it."""
    temperatures = [clipped_temperature(req.sampling_params) for req in reqs]
    scores = logits / to_device(temperatures, torch.float32, logits.device)[:, None]
    best = scores.amax(dim=-1, keepdim=True)
    if filtered:
        weights = (scores - best).exp_()
        weights.masked_fill_(drop_mask(scores, best, weights, [req.sampling_params for req in reqs]), 0)
    else:
        weights = scores.sub_(best).exp_()
    return best[:, 0], draw(weights, [uniform(req.seed, req.num_generated) for req in reqs])


def _with_logprobs(
    tokens: torch.Tensor, logits: torch.Tensor, reqs: Sequence[Req], rows: Sequence[int]
) -> SampleOutput:
    """rows: those that may want log-probabilities."""
    wanted = {row: reqs[row].sampling_params.logprobs for row in rows}
    tops = {row: top for row, top in wanted.items() if top is not None}
    if not tops:
        return SampleOutput(tokens)
    asking = list(tops)
    logprobs = token_logprobs(_take(logits, asking), _take(tokens, asking), max(tops.values()))
    return SampleOutput(tokens, logprobs, tops)
