"""Sums and joins over the ranks of torch.distributed's default group, which the engine has to start."""

from __future__ import annotations

import torch
import torch.distributed as dist

from minisgl.distributed.tp_info import TPInfo


def all_reduce(x: torch.Tensor, tp: TPInfo) -> torch.Tensor:
    """The sum of every rank's `x`, in place."""
    if tp.size > 1:
        dist.all_reduce(x)
    return x


def all_gather(x: torch.Tensor, tp: TPInfo) -> torch.Tensor:
    """Every rank's `x` [..., n], joined along the last dim in order of rank: [..., tp.size * n]."""
    if tp.size == 1:
        return x
    parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(tp.size)]
    dist.all_gather(parts, x.contiguous())
    return torch.cat(parts, dim=-1)
