"""Where a model hands over to the attention backend in force."""

from __future__ import annotations

import torch
from torch import nn

from minisgl.core import Context


class AttentionLayer(nn.Module):
    """One layer's attention over the KV pool. Holds no weights; layer_id says whose K and V in the pool."""

    def __init__(self, layer_id: int) -> None:
        super().__init__()
        self.layer_id = layer_id

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, ctx: Context) -> torch.Tensor:
        """q [T, Hq, D], k and v [T, Hkv, D], maybe not contiguous; the heads are this rank's. -> [T, Hq * D]."""
        out: torch.Tensor = ctx.attn_backend.forward(q, k, v, self.layer_id, ctx.attn_metadata)
        return out
