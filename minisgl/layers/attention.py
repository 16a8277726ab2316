"""Where a model hands over to the KV pool and to the attention backend in force."""

from __future__ import annotations

import torch
from torch import nn

from minisgl.core import Context
from minisgl.kernel.rotation import rotate_and_store
from minisgl.layers.norm import RMSNorm
from minisgl.layers.rotary import Rotation


class AttentionLayer(nn.Module):
    """One layer's attention over the KV pool, with as many heads as this rank has.

    layer_id: whose K and V in the pool. q_norm, k_norm: of every head before it turns by position, if the model has
    them; sinks [Hq]: see `BaseAttnBackend.forward`. These are the model's own and hold their weights there.
    """

    def __init__(
        self,
        layer_id: int,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        q_norm: RMSNorm | None = None,
        k_norm: RMSNorm | None = None,
        sinks: nn.Parameter | None = None,
    ) -> None:
        super().__init__()
        self.layer_id = layer_id
        self.heads = [num_qo_heads, num_kv_heads, num_kv_heads]
        self.head_dim = head_dim
        self._norms, self._sinks = (q_norm, k_norm), (sinks,)  # tuples, so that their weights keep one name

    def forward(self, qkv: torch.Tensor, rotation: Rotation, ctx: Context) -> torch.Tensor:
        """qkv [T, (Hq + 2 Hkv) * D], the heads side by side, given up -> [T, Hq * D]."""
        qkv = qkv.view(qkv.shape[0], -1, self.head_dim)
        self._rotate_and_store(qkv, rotation, ctx)
        q, k, v = qkv.split_with_sizes(self.heads, dim=1)
        out: torch.Tensor = ctx.attn_backend.forward(q, k, v, self.layer_id, ctx.attn_metadata, *self._sinks)
        return out

    def _rotate_and_store(self, qkv: torch.Tensor, rotation: Rotation, ctx: Context) -> None:
        pool, (num_qo_heads, num_kv_heads, _) = ctx.kv_pool, self.heads
        q_norm, k_norm = self._norms
        rotate_and_store(
            *(qkv, rotation.cos, rotation.sin, num_qo_heads, num_kv_heads),
            *(pool.k_cache(self.layer_id), pool.v_cache(self.layer_id), ctx.out_loc),
            *(() if q_norm is None or k_norm is None else (q_norm.weight, k_norm.weight, q_norm.eps)),
        )
