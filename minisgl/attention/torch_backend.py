"""Attention in plain PyTorch, on any device: the path where no kernels of our own can be, and their reference.

Shape letters: T tokens in the batch, B requests of a part, Hkv KV heads, G query heads that share one (a group),
D head dim, Q queries, N keys, P pages a row, Hq = Hkv * G.
"""

from __future__ import annotations

from functools import partial

import torch

from minisgl.attention.base import AttnConfig, BaseAttnBackend
from minisgl.attention.index import Index, IntArray, put, take
from minisgl.attention.parts import (
    BandPart,
    DecodePart,
    ExtendPart,
    LayerParts,
    PrefixPart,
    TorchAttnMetadata,
)
from minisgl.attention.plan import AttnShape, BatchPlanner
from minisgl.core import Batch, Staging
from minisgl.kernel.torch_ops import add_sinks, attention, merge_states
from minisgl.utils.math import div_ceil

State = tuple[torch.Tensor, torch.Tensor]
"""Attention to some of the keys: o [T, Hkv, G, D] of the pool's dtype, lse [T, Hkv, G] float32; any strides."""


class TorchAttnBackend(BaseAttnBackend):
    """Plans in NumPy once a batch, then takes a handful of calls a layer, whatever the batch is made of.

    The layers of the pool have any dtype that q, k and v have too.
    Keeps two buffers for gathered keys and values, as large as any batch so far needed: fresh memory of that size
    costs more in page faults than the copy itself.
    """

    def __init__(self, config: AttnConfig) -> None:
        sample = config.kv_pool.k_cache(0)
        self._kv_pool = config.kv_pool
        self._host_table = config.host_table
        self._shared_prefix = config.shared_prefix
        self._windows = config.form.windows
        form = config.form
        self._attention = partial(attention, scale=form.scale, softcap=form.softcap)
        self._shape = AttnShape(
            *(config.page_size, config.num_qo_heads, config.num_kv_heads, config.head_dim),
            *(sample.dtype, sample.device),
        )
        self._scratch = self._new_scratch(0)

    def plan(self, batch: Batch, staging: Staging, padded: int | None = None) -> TorchAttnMetadata:
        assert padded is None, "these forward passes cannot be captured"
        longest, table = int(batch.device_lens.max()), self._table_of(batch)
        # A window that hides nothing in this batch is none.
        windows = [window if window < longest else 0 for window in self._windows]
        parts = {
            window: BatchPlanner(batch, table, self._shape, self._shared_prefix, window).plan()
            for window in set(windows)
        }
        num_gathered = max(of_window.num_gathered for of_window in parts.values())
        if num_gathered > len(self._scratch[0]):
            self._scratch = self._new_scratch(num_gathered)
        return tuple(parts[window] for window in windows)

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        layer_id: int,
        meta: TorchAttnMetadata,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See the base class. Parts are joined in float32; each part's own result has q's dtype."""
        out, lse = self._attend_parts(q, k, v, layer_id, meta[layer_id])
        if sinks is not None:
            add_sinks(out.view(q.shape), lse.view(q.shape[:-1]), sinks)
        return out.to(q.dtype)

    def _attend_parts(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layer_id: int, parts: LayerParts
    ) -> State:
        """o [T, Hq * D] of q's dtype or float32, lse [T, Hq]."""
        q = q.view(len(q), self._shape.num_kv_heads, -1, self._shape.head_dim)
        out = q.new_empty(q.shape, dtype=torch.float32 if parts.prefixes else q.dtype)
        lse = q.new_empty(q.shape[:-1], dtype=torch.float32)
        for extend in parts.extends:
            _put_state(out, lse, extend.tokens, self._attend_new_tokens(q, k, v, extend))
        for band in parts.bands:
            _put_state(out, lse, band.tokens, self._attend_band(q, layer_id, band))
        for decode in parts.decodes:
            _put_state(out, lse, decode.tokens, self._attend_own(q, layer_id, decode))
        for prefix in parts.prefixes:
            o, prefix_lse = self._attend_prefix(q, layer_id, prefix)
            merged = merge_states(take(out, prefix.tokens), take(lse, prefix.tokens), o.float(), prefix_lse)
            _put_state(out, lse, prefix.tokens, merged)
        return out.flatten(1), lse.flatten(1)

    def _new_scratch(self, num_slots: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Two buffers [num_slots, Hkv, D] like the pool's layers."""
        sample = self._kv_pool.k_cache(0)
        return sample.new_empty(num_slots, *sample.shape[1:]), sample.new_empty(num_slots, *sample.shape[1:])

    def _table_of(self, batch: Batch) -> IntArray:
        """[B, P] page-table rows of the batch on the host, as wide as its longest context."""
        num_pages = div_ceil(int(batch.device_lens.max()), self._shape.page_size)
        return self._host_table[batch.table_idxs, :num_pages]

    def _read(self, layer_id: int, slots: Index) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [N, Hkv, D] in `slots`: views of the pool, or copies that live until the next call."""
        keys, values = self._kv_pool.k_cache(layer_id), self._kv_pool.v_cache(layer_id)
        return take(keys, slots, self._scratch[0]), take(values, slots, self._scratch[1])

    def _attend_own(self, q: torch.Tensor, layer_id: int, part: DecodePart) -> State:
        """One query a request to its own keys; the group's heads are the kernel's query rows, so keys are read once."""
        queries = take(q, part.tokens)
        keys, values = (_by_request(x, len(queries)).transpose(1, 2) for x in self._read(layer_id, part.slots))
        return self._attention(queries, keys, values, mask=part.mask)

    def _attend_prefix(self, q: torch.Tensor, layer_id: int, part: PrefixPart) -> State:
        """Every query of every request to the same keys, in one call: per KV head, [T, G] is folded into Q = T * G."""
        queries = take(q, part.tokens).transpose(0, 1)
        keys, values = (x.transpose(0, 1)[None] for x in self._read(layer_id, part.slots))
        o, lse = self._attention(queries.flatten(1, 2)[None], keys, values)
        return o.reshape(queries.shape).transpose(0, 1), lse.reshape(queries.shape[:-1]).transpose(0, 1)

    def _attend_new_tokens(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, part: ExtendPart) -> State:
        """New tokens to one another: nothing is read from the pool, and no mask, for the kernel skips what is later."""
        queries, keys, values = (_by_request(take(x, part.tokens), part.num_reqs) for x in (q, k, v))
        return self._attend_by_head(queries, keys, values, causal=True)

    def _attend_band(self, q: torch.Tensor, layer_id: int, part: BandPart) -> State:
        """New tokens of one request to what any of them sees, in the pool, less what the mask takes away."""
        keys, values = self._read(layer_id, part.slots)
        return self._attend_by_head(q[part.tokens][None], keys[None], values[None], mask=part.mask)

    def _attend_by_head(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        causal: bool = False,
        mask: torch.Tensor | None = None,
    ) -> State:
        """queries [B, Q, Hkv, G, D] to keys, values [B, N, Hkv, D]. T = B * Q.

        The group is a batch dimension (a view of the keys for one request): folded queries would want a mask each.
        """
        num_reqs, num_queries, num_kv_heads, group, head_dim = queries.shape
        keys, values = (x.transpose(1, 2).expand(group, *(-1,) * 4).flatten(0, 1) for x in (keys, values))
        o, lse = self._attention(queries.permute(3, 0, 2, 1, 4).flatten(0, 1), keys, values, causal=causal, mask=mask)
        o = o.reshape(group, num_reqs, num_kv_heads, num_queries, head_dim).permute(1, 3, 2, 0, 4)
        lse = lse.reshape(group, num_reqs, num_kv_heads, num_queries).permute(1, 3, 2, 0)
        return o.flatten(0, 1), lse.flatten(0, 1)


def _by_request(x: torch.Tensor, num_reqs: int) -> torch.Tensor:
    """[num_reqs * N, ...] -> [num_reqs, N, ...]; a view."""
    return x.view(num_reqs, -1, *x.shape[1:])


def _put_state(out: torch.Tensor, lse: torch.Tensor, tokens: Index, state: State) -> None:
    put(out, tokens, state[0])
    put(lse, tokens, state[1])
