"""Attention by C++ kernels of our own on a CPU: a call a layer, which reads the pool through the page table.

What a token gets is the same to the bit whatever is beside it in the batch, wherever its prompt was cut, and whether
its prefix is read together with others: see csrc/attention_state.h.

Shape letters: T tokens in the batch, B its rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from minisgl.attention.base import AttnConfig, BaseAttnBackend
from minisgl.attention.shared_prefix import IN_PLACE, SharedRange, SharedRanges, choose_shared
from minisgl.core import Batch, PrefixGroup, Staging
from minisgl.kernel.cpu_attention import CHUNK, RANGE_FIELDS, ROW_FIELDS, AttentionHeads, AttentionPlan, attend
from minisgl.utils.arrays import NO_IDS, Int32Array

CpuAttnMetadata = tuple[AttentionPlan, ...]
"""By layer; those that see equally far have the same."""


class CpuAttnBackend(BaseAttnBackend):
    """There is a plan for each window that layers have. A window that hides nothing in a batch is none."""

    can_record = True

    def __init__(self, config: AttnConfig) -> None:
        self._config = config
        form = config.form
        heads = config.num_qo_heads, config.num_kv_heads, config.head_dim
        self._heads = AttentionHeads(*heads, form.scale, form.softcap)

    def plan(self, batch: Batch, staging: Staging, padded: int | None = None) -> CpuAttnMetadata:
        assert padded is None, "these forward passes cannot be captured"
        longest = int(batch.device_lens.max())
        windows = [window if window < longest else 0 for window in self._config.form.windows]
        plans = {window: self._plan(batch, window) for window in set(windows)}
        return tuple(plans[window] for window in windows)

    def pin(self, meta: CpuAttnMetadata) -> CpuAttnMetadata:
        windows = self._config.form.windows
        by_window = {window: meta[windows.index(window)].copy() for window in set(windows)}
        return tuple(by_window[window] for window in windows)

    def refill(self, pinned: CpuAttnMetadata, meta: CpuAttnMetadata) -> None:
        windows = self._config.form.windows
        for layer in map(windows.index, set(windows)):
            pinned[layer].become(meta[layer])

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        layer_id: int,
        meta: CpuAttnMetadata,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        pool = self._config.kv_pool
        return attend(q, pool.k_cache(layer_id), pool.v_cache(layer_id), meta[layer_id], sinks)

    def _plan(self, batch: Batch, window: int) -> AttentionPlan:
        config = self._config
        first_tokens = batch.extend_lens.cumsum() - batch.extend_lens
        shared = self._shared_ranges(batch, window)
        rows = np.empty((len(batch.reqs), ROW_FIELDS), np.int32)
        np.stack(
            (batch.table_idxs, first_tokens, batch.extend_lens, batch.cached_lens, shared.own_begins),
            axis=1,
            out=rows,
            casting="unsafe",
        )
        ranges, tokens = _list_ranges(shared.ranges, rows)
        return AttentionPlan(config.host_table, config.page_size, rows, ranges, tokens, window, self._heads)

    def _shared_ranges(self, batch: Batch, window: int) -> SharedRanges:
        """What is read once for several decodes; a row that is longer than the window is read alone."""
        groups = _whole_chunks(batch.groups) if self._config.shared_prefix else []
        if not groups:
            return SharedRanges([], np.zeros(len(batch.reqs), np.int64))
        is_member: npt.NDArray[np.bool_] = np.arange(len(batch.reqs)) < batch.num_decodes
        if window:
            is_member &= batch.device_lens <= window
        return choose_shared(groups, is_member, IN_PLACE)


def _whole_chunks(groups: Sequence[PrefixGroup]) -> list[PrefixGroup]:
    """The groups that have any, up to the end of the last."""
    bounds = [(group.rows, group.begin // CHUNK * CHUNK, group.end // CHUNK * CHUNK) for group in groups]
    return [PrefixGroup(rows, begin, end) for rows, begin, end in bounds if end > begin]


def _list_ranges(ranges: Sequence[SharedRange], rows: Int32Array) -> tuple[Int32Array, Int32Array]:
    """(ranges, tokens) of an `AttentionPlan`."""
    if not ranges:
        return np.empty((0, RANGE_FIELDS), np.int32), NO_IDS
    levels = np.zeros(len(rows), np.int32)  # ranges so far of each row
    listed: list[tuple[int, ...]] = []
    tokens: list[Int32Array] = []
    num_tokens = 0
    for of_rows, begin, end in ranges:
        of_range = np.concatenate([np.arange(first, first + count) for first, count in rows[of_rows, 1:3]])
        listed.append((rows[of_rows[0], 0], begin, end, num_tokens, len(of_range), levels[of_rows[0]]))
        tokens.append(of_range.astype(np.int32))
        num_tokens += len(of_range)
        levels[of_rows] += 1
    in_order = sorted(listed, key=lambda fields: fields[-1])
    return np.array(in_order, np.int32), np.concatenate(tokens)
