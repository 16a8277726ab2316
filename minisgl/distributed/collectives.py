"""Sums and joins over the ranks that share a model; with one rank they do nothing."""

from __future__ import annotations

import torch

from minisgl.distributed.tp_info import TPInfo


def all_reduce(x: torch.Tensor, tp: TPInfo) -> torch.Tensor:
    """The sum of every rank's `x`, in place."""
    if tp.size > 1:
        tp.joined.all_reduce(x)
    return x


def all_gather(x: torch.Tensor, tp: TPInfo) -> torch.Tensor:
    """Every rank's `x` [N, n], side by side in order of rank: [N, tp.size * n]."""
    if tp.size == 1:
        return x
    return tp.joined.all_gather(x).transpose(0, 1).reshape(len(x), tp.size * x.shape[1])
