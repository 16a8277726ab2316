"""Attention with all scores in one matrix and a mask over it: what every backend is compared with.

Shape letters: Q new tokens, N keys, Hq query heads, Hkv KV heads, D head dim.
"""

from __future__ import annotations

import torch

from minisgl.attention import AttnForm


def seen(cached: int, num_new: int, window: int = 0) -> torch.Tensor:
    """[Q, N] bool: which keys each of the new tokens sees, where `cached` come before them; window 0: all before it."""
    keys = torch.arange(cached + num_new)
    queries = keys[cached:, None]
    return (keys <= queries) & (keys > queries - (window or cached + num_new))


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    sees: torch.Tensor,
    form: AttnForm,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """q [Q, Hq, D], k, v [N, Hkv, D], sees [Q, N], sinks [Hq] -> [Q, Hq * D], all of one dtype."""
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    scores = torch.einsum("qhd,nhd->hqn", q, k) * form.scale
    if form.softcap:
        scores = form.softcap * torch.tanh(scores / form.softcap)
    scores = scores.masked_fill(~sees.to(q.device), float("-inf"))
    if sinks is not None:
        sink = sinks.to(scores.dtype)[:, None, None].expand(-1, len(q), 1)
        weights = torch.cat([scores, sink], dim=-1).softmax(-1)[..., :-1]
    else:
        weights = scores.softmax(-1)
    return torch.einsum("hqn,nhd->qhd", weights, v).flatten(1)
