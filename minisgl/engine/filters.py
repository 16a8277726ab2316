"""Which tokens a draw may take: top_k, then top_p of what is left, then min_p, like Hugging Face's logits warpers.

top_k keeps every token that is not below the k-th best, ties included. top_p keeps the fewest best tokens whose
probabilities reach p, always one; of equal ones at the border the lowest ids stay (Hugging Face leaves this to its
sort), so p = 0 is greedy. min_p keeps what has at least min_p times the best token's probability. Each is a border
between scores, found among the best few: on a CPU first among those near the best one, then among the best C, and
only when these do not hold top_p of the mass in the whole row.
Source: transformers 5.24, generation/logits_process.py. Shape letters: N rows, V vocabulary, C best scores looked at.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from minisgl.core import SamplingParams
from minisgl.engine.draws import block_sums
from minisgl.engine.transfer import to_device

_CANDIDATES = 1024
_NEAR = 8.0  # a score so far below the best one has e^-8 of its probability


def drop_mask(
    scores: torch.Tensor, best: torch.Tensor, weights: torch.Tensor, params: Sequence[SamplingParams]
) -> torch.Tensor:
    """[N, V] bool: the tokens that do not pass each row's filters.

    scores: [N, V] float32, after temperature. best: [N, 1], the best score of each row. weights: [N, V],
    exp(scores - best). With top_p the host waits for the device.
    """
    border = best + _column([_log(p.min_p) for p in params], scores)
    if all(p.top_k <= 0 and p.top_p == 1 for p in params):
        return scores < border
    ranked = _ranked_scores(scores, best, params)
    kth = _kth_scores(ranked, [_active_top_k(p, scores.shape[-1]) for p in params])
    border = torch.maximum(border, kth)
    if all(p.top_p == 1 for p in params):
        return scores < border
    nucleus = _sure_nucleus(scores, weights, ranked, kth, _column([p.top_p for p in params], scores, torch.float64))
    dropped = scores < torch.maximum(border, nucleus.border)
    for row in nucleus.has_ties[:, 0].nonzero()[:, 0].tolist():
        equal = scores[row] == nucleus.border[row]
        dropped[row] |= equal & (equal.cumsum(0) > nucleus.num_at_border[row])
    return dropped


def top_values(scores: torch.Tensor, num: int) -> torch.Tensor:
    """[N, num] largest values of scores [N, V], largest first. On a CPU NumPy's partition is 10x torch.topk."""
    if scores.is_cuda:
        return scores.topk(num, dim=-1).values
    cut = scores.shape[-1] - num
    tail = np.partition(scores.numpy(), cut, axis=-1)[:, cut:]
    tail.sort(axis=-1)
    return torch.from_numpy(tail[:, ::-1].copy())


def _column(values: Sequence[float], like: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    return to_device(values, dtype or like.dtype, like.device)[:, None]


def _log(min_p: float) -> float:
    return math.log(min_p) if min_p > 0 else -math.inf


def _active_top_k(params: SamplingParams, vocab_size: int) -> int:
    return max(params.top_k, 0) if params.top_k < vocab_size else 0


def _ranked_scores(scores: torch.Tensor, best: torch.Tensor, params: Sequence[SamplingParams]) -> torch.Tensor:
    """[N, C] best scores of each row, best first; C is what the filters of all rows need, or probably do."""
    vocab_size = scores.shape[-1]
    num = max(_active_top_k(p, vocab_size) for p in params) + 1
    if any(p.top_p < 1 for p in params):
        if (near := _near_scores(scores, best, num)) is not None:
            return near
        num = max(num, _CANDIDATES)
    return top_values(scores, min(num, vocab_size))


def _near_scores(scores: torch.Tensor, best: torch.Tensor, num: int) -> torch.Tensor | None:
    """[N, C] all scores of each row near its best one, best first, and -inf behind them in every row.

    None on a GPU, and where a row has fewer than `num` of them or very many. To find them is one pass over the row; to
    find its best 1,024 is ten.
    """
    if scores.is_cuda:
        return None
    near = (scores >= best - _NEAR).numpy()
    counts = near.sum(axis=-1)
    if counts.min() < num or counts.max() > _CANDIDATES:
        return None
    ranked = np.full((len(near), counts.max() + 1), -np.inf, np.float32)
    for row, (values, is_near) in enumerate(zip(scores.numpy(), near, strict=True)):
        ranked[row, : counts[row]] = np.sort(values[is_near])[::-1]
    return torch.from_numpy(ranked)


def _kth_scores(ranked: torch.Tensor, top_ks: Sequence[int]) -> torch.Tensor:
    """[N, 1] score of the k-th best token, -inf where top_k is off."""
    k = _column(top_ks, ranked, torch.int64)
    return ranked.gather(-1, (k - 1).clamp(min=0)).where(k > 0, -math.inf)


class _Nucleus(NamedTuple):
    """What top_p keeps of each row: scores above `border`, and `num_at_border` of those equal to it. All [N, 1].

    sure: false if more of the best scores are needed to know. has_ties: not all that equal the border may stay.
    """

    border: torch.Tensor
    num_at_border: torch.Tensor
    sure: torch.Tensor
    has_ties: torch.Tensor


def _nucleus(ranked: torch.Tensor, kth: torch.Tensor, total: torch.Tensor, top_p: torch.Tensor, all: bool) -> _Nucleus:
    """ranked: [N, C] best scores, best first; `all` of the row or not. total: [N, 1] mass of the row without top_k."""
    mass = (ranked - ranked[:, :1]).double().exp_().where(ranked >= kth, 0)
    has_top_k = kth > -math.inf
    total = torch.where(has_top_k, mass.sum(dim=-1, keepdim=True), total)
    kept = (mass.cumsum(dim=-1) - mass < top_p * total) & (ranked >= kth)
    num_kept = kept.sum(dim=-1, keepdim=True).clamp_(min=1)
    border = ranked.gather(-1, num_kept - 1)
    num_at_border = num_kept - (ranked > border).sum(dim=-1, keepdim=True)
    off = top_p >= 1
    sure = (ranked[:, -1:] < torch.where(has_top_k, kth, border)) | off | all
    has_ties = ((ranked == border).sum(dim=-1, keepdim=True) > num_at_border) & ~off
    return _Nucleus(border.masked_fill(off, -math.inf), num_at_border, sure, has_ties)


def _sure_nucleus(
    scores: torch.Tensor, weights: torch.Tensor, ranked: torch.Tensor, kth: torch.Tensor, top_p: torch.Tensor
) -> _Nucleus:
    """The nucleus of every row, from more of the best scores where `ranked` does not tell."""
    total = block_sums(weights).double().sum(dim=-1, keepdim=True)
    nucleus = _nucleus(ranked, kth, total, top_p, all=ranked.shape == scores.shape)
    vocab_size = scores.shape[-1]
    for num in (_CANDIDATES, vocab_size):
        rows = (~nucleus.sure[:, 0]).nonzero()[:, 0]
        if len(rows) == 0 or not ranked.shape[-1] < num <= vocab_size:
            continue
        more = top_values(scores[rows], num)
        surer = _nucleus(more, kth[rows], total[rows], top_p[rows], all=num == vocab_size)
        for values, surer_values in zip(nucleus, surer, strict=True):
            values[rows] = surer_values
    return nucleus
