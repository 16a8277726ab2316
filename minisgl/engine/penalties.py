"""Edits of logits that a request asks for, before temperature and filters, in this order:

1. repetition_penalty: every token of prompt and output; positive logits are divided by it, others multiplied.
2. presence_penalty once, frequency_penalty per occurrence: subtracted from tokens of the output only, as OpenAI has it.
3. logit_bias: added. 4. min_tokens: end tokens become -inf until so many were generated.
Ids that the logits do not have are passed over. 1 and 4 as in transformers 5.24, generation/logits_process.py.
Shape letters: N rows, V vocabulary. A cell is a place in the flat logits: row * V + token id.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from minisgl.core import Req, SamplingParams
from minisgl.engine.transfer import to_device


def may_edit(params: SamplingParams) -> bool:
    """Whether there may be steps that change the logits of a request with these parameters."""
    return _always_edits(params) or params.min_tokens > 0


def is_edited(req: Req) -> bool:
    """Whether any step changes the logits of this request now."""
    return _always_edits(req.sampling_params) or _must_go_on(req)


def edit_logits(logits: torch.Tensor, reqs: Sequence[Req], last_tokens: torch.Tensor | None) -> None:
    """Change logits [N, V] (contiguous float32) in place as the requests ask.

    last_tokens: [N] integers on the device; read for requests whose last token the host does not know (prev_row >= 0).
    -1 there (its request has failed, and what comes out now is thrown away) counts as token 0.
    """
    for step in (_penalize_repetition, _penalize_output, _add_bias, _mask_end_tokens):
        step(logits, reqs, last_tokens)


def _always_edits(params: SamplingParams) -> bool:
    return params.repetition_penalty != 1 or _has_output_penalty(params) or bool(params.logit_bias)


def _has_output_penalty(params: SamplingParams) -> bool:
    return params.presence_penalty != 0 or params.frequency_penalty != 0


def _must_go_on(req: Req) -> bool:
    return req.num_generated < req.sampling_params.min_tokens and len(req.end_token_ids) > 0


def _penalize_repetition(logits: torch.Tensor, reqs: Sequence[Req], last_tokens: torch.Tensor | None) -> None:
    starts = {row: 0 for row, req in enumerate(reqs) if req.sampling_params.repetition_penalty != 1}
    if not starts:
        return
    cells = _history_cells(logits, reqs, last_tokens, starts)
    penalty = _column([req.sampling_params.repetition_penalty for req in reqs], logits)[cells // logits.shape[-1]]
    flat = logits.view(-1)
    before = flat[cells]
    flat[cells] = torch.where(before < 0, before * penalty, before / penalty)


def _penalize_output(logits: torch.Tensor, reqs: Sequence[Req], last_tokens: torch.Tensor | None) -> None:
    starts = {row: req.prompt_len for row, req in enumerate(reqs) if _has_output_penalty(req.sampling_params)}
    if not starts:
        return
    cells = _history_cells(logits, reqs, last_tokens, starts)
    rows = cells // logits.shape[-1]
    frequency = _column([req.sampling_params.frequency_penalty for req in reqs], logits)[rows]
    presence = _column([req.sampling_params.presence_penalty for req in reqs], logits)[rows]
    flat = logits.view(-1)
    flat.index_put_((cells,), -frequency, accumulate=True)
    flat[cells] = flat[cells] - presence  # a token that occurs twice is written twice, with one value


def _add_bias(logits: torch.Tensor, reqs: Sequence[Req], _last_tokens: torch.Tensor | None) -> None:
    vocab_size = logits.shape[-1]
    biases = {
        row * vocab_size + token_id: bias
        for row, req in enumerate(reqs)
        for token_id, bias in (req.sampling_params.logit_bias or {}).items()
        if token_id < vocab_size
    }
    if biases:
        cells = to_device(list(biases), torch.int64, logits.device)
        logits.view(-1)[cells] += _column(list(biases.values()), logits)


def _mask_end_tokens(logits: torch.Tensor, reqs: Sequence[Req], _last_tokens: torch.Tensor | None) -> None:
    ends = {row: np.array(list(req.end_token_ids)) for row, req in enumerate(reqs) if _must_go_on(req)}
    if ends:
        logits.view(-1)[_cells(logits, ends)] = -torch.inf


def _column(values: Sequence[float], like: torch.Tensor) -> torch.Tensor:
    return to_device(torch.tensor(values, dtype=torch.float64), like.dtype, like.device)


def _cells(logits: torch.Tensor, ids_of_row: dict[int, npt.NDArray[np.integer]]) -> torch.Tensor:
    """The int64 cells of some tokens of some rows, on the logits' device; ids beyond V are left out."""
    vocab_size = logits.shape[-1]
    parts = [row * vocab_size + ids[ids < vocab_size].astype(np.int64) for row, ids in ids_of_row.items()]
    return to_device(torch.from_numpy(np.concatenate(parts)), torch.int64, logits.device)


def _history_cells(
    logits: torch.Tensor, reqs: Sequence[Req], last_tokens: torch.Tensor | None, starts: dict[int, int]
) -> torch.Tensor:
    """The cells of every token from position starts[row] on, of the rows in `starts`; repeated tokens repeat."""
    cells = _cells(logits, {row: reqs[row].input_ids[start:] for row, start in starts.items()})
    pending = [row for row in starts if reqs[row].prev_row >= 0]
    if not pending:
        return cells
    assert last_tokens is not None, f"the last tokens of rows {pending} are on the device, but were not given"
    rows = to_device(pending, torch.int64, logits.device)
    return torch.cat([cells, rows * logits.shape[-1] + last_tokens[rows].long().clamp(min=0)])
