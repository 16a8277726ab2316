"""Attention of a batch in C++ (csrc/attention.h): one call a layer, whatever the batch is made of.

Shape letters: T tokens in the batch, B rows, N ranges, E tokens listed, Hq query heads, Hkv KV heads, D head dim,
R page-table rows, P pages a row.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import torch

from minisgl.kernel.cpu_library import functions, has_dense_rows, is_dense
from minisgl.utils.arrays import Int32Array

CHUNK = 64  # tokens that are weighed together, counted from the first of a text
ROW_FIELDS = 5  # of a row: page-table row, first token, new tokens, cached tokens, from where it is read alone
RANGE_FIELDS = 6  # of a range: page-table row, begin, end, first listed token, how many, ranges read before it


class AttentionHeads(NamedTuple):
    """scale, softcap: see `AttnForm`."""

    num_qo_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    softcap: float


class AttentionPlan(ctypes.Structure):
    """What the layers with one window have in common in a batch, as the C functions want it.

    page_table: [R, P] int32, read when they are called. rows: [B, ROW_FIELDS] int32, in the order of their tokens.
    ranges: [N, RANGE_FIELDS] int32, of whole chunks, which the tokens [E] int32 listed for them all see; level by
    level: a token's next one begins where its last one ended, and its row's own part where all have ended. window: a
    token sees so many positions, its own included; 0: all before it.
    """

    _fields_ = [
        ("page_table", ctypes.c_void_p),
        ("page_table_stride", ctypes.c_int64),
        ("page_size", ctypes.c_int64),
        ("rows", ctypes.c_void_p),
        ("num_rows", ctypes.c_int64),
        ("ranges", ctypes.c_void_p),
        ("num_ranges", ctypes.c_int64),
        ("tokens", ctypes.c_void_p),
        ("window", ctypes.c_int64),
        ("num_qo_heads", ctypes.c_int64),
        ("num_kv_heads", ctypes.c_int64),
        ("head_dim", ctypes.c_int64),
        ("scale", ctypes.c_float),
        ("softcap", ctypes.c_float),
    ]

    def __init__(
        self,
        page_table: Int32Array,
        page_size: int,
        rows: Int32Array,
        ranges: Int32Array,
        tokens: Int32Array,
        window: int,
        heads: AttentionHeads,
    ) -> None:
        for array in (page_table, rows, ranges, tokens):
            assert array.dtype == "int32", array.dtype
            assert array.flags.c_contiguous, array.strides
        assert rows.shape[1:] == (ROW_FIELDS,), rows.shape
        assert ranges.shape[1:] == (RANGE_FIELDS,), ranges.shape
        super().__init__(
            *(page_table.ctypes.data, page_table.shape[1], page_size, rows.ctypes.data, len(rows)),
            *(ranges.ctypes.data, len(ranges), tokens.ctypes.data, window, *heads),
        )
        self.rows_read, self.ranges_read, self.tokens_read = rows, ranges, tokens
        self._kept = page_table
        self.num_tokens = int(rows[-1, 1] + rows[-1, 2])
        self._out = torch.empty(0)

    def copy(self) -> AttentionPlan:
        """The same somewhere else."""
        copied = AttentionPlan.__new__(AttentionPlan)
        copied._out = torch.empty(0)
        copied.become(self)
        return copied

    def become(self, plan: AttentionPlan) -> None:
        """Change to another plan, where this one lies."""
        ctypes.memmove(ctypes.addressof(self), ctypes.addressof(plan), ctypes.sizeof(plan))
        self.rows_read, self.ranges_read, self.tokens_read = plan.rows_read, plan.ranges_read, plan.tokens_read
        self._kept, self.num_tokens = plan._kept, plan.num_tokens

    def out_like(self, q: torch.Tensor) -> torch.Tensor:
        """[T, Hq * D] of q's dtype: the same for every layer, for fresh memory takes longer to get than to fill."""
        if self._out.dtype != q.dtype or len(self._out) != self.num_tokens:
            self._out = torch.empty(self.num_tokens, self.num_qo_heads * self.head_dim, dtype=q.dtype)
        return self._out


def attend(
    q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, plan: AttentionPlan, sinks: torch.Tensor | None
) -> torch.Tensor:
    """Attention of a batch: [T, Hq * D] of q's dtype, which the next call with the same plan overwrites.

    q [T, Hq, D], tokens any stride apart; k_cache, v_cache [slots, Hkv, D] of q's dtype; sinks [Hq]: see
    `BaseAttnBackend.forward`. MemoryError if there is none for what is kept until parts are joined.
    """
    tokens, heads, dim = q.shape
    assert q.shape == (plan.num_tokens, plan.num_qo_heads, plan.head_dim), q.shape
    assert has_dense_rows(q), q.stride()
    for pool in (k_cache, v_cache):
        assert is_dense(pool, (len(pool), plan.num_kv_heads, dim), q.dtype), (q.shape, q.dtype, pool.shape, pool.dtype)
    if sinks is not None:
        sinks = sinks.float()
        assert is_dense(sinks, (heads,), torch.float32), (q.shape, sinks.shape)
    out = plan.out_like(q)
    has_memory = functions()["attention", q.dtype](
        *(ctypes.addressof(plan), q.data_ptr(), q.stride(0), k_cache.data_ptr(), v_cache.data_ptr()),
        *(None if sinks is None else sinks.data_ptr(), out.data_ptr(), torch.get_num_threads()),
    )
    if not has_memory:
        raise MemoryError(f"no memory for the attention of {tokens} tokens")
    return out
