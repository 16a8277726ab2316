"""Attention by FlashInfer's kernels, on NVIDIA GPUs: decodes, prompts and both together, from pages of any size.

Shape letters: T tokens in the batch, B requests, D the decodes among them (first), N runs of pages, Q queries of the
prefix pieces, Hq query heads, Hkv KV heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch

from minisgl.attention.base import AttnConfig, BaseAttnBackend
from minisgl.attention.flashinfer_calls import (
    GRAPH_INT_WORKSPACE,
    KV,
    DecodeCall,
    PagedKV,
    PrefillCall,
    capability,
    checked_shape,
    library,
    num_sms,
)
from minisgl.attention.flashinfer_plan import COST, Runs, cut_ranges, merge_parts, prefers_fa3, tokens_spared
from minisgl.attention.shared_prefix import SharedRange, SharedRanges, choose_shared
from minisgl.core import Batch, Staging
from minisgl.kernel import fill_kv_indices, merge_partials, triton
from minisgl.kernel.attention_work import Partials
from minisgl.utils.arrays import Int32Array

HOPPER = (9, 0)
# From so many new tokens a request on, FA3's larger tiles are full enough.
MIN_FA3_QUERIES = 128
# Bytes of K and V a layer that shared prefixes spare, from which on a batch goes without a graph: 0.15 ms of reading,
# about what it takes the host to launch a layer.
MIN_BYTES_SPARED = 640 << 20


@dataclass(frozen=True, slots=True, eq=False)
class PrefixPart:
    """Prefixes read once for several rows. q_rows [Q] int32: whose query each is, piece by piece.

    results: D + Q of them, first the rows' own; every layer's go there in turn. parts [D + Q], part_begins [D + 1]
    int32: which of them make up each row.
    """

    call: PrefillCall
    q_rows: torch.Tensor
    parts: torch.Tensor
    part_begins: torch.Tensor
    results: Partials


@dataclass(frozen=True, slots=True, eq=False)
class FlashInferMetadata:
    """rows, first_pages: [N] int32 on the device, where the runs of `kv` come from. num_decodes: D, with padding."""

    rows: torch.Tensor
    first_pages: torch.Tensor
    kv: PagedKV
    num_decodes: int
    decode: DecodeCall | None = None
    extend: PrefillCall | None = None
    prefix: PrefixPart | None = None

    @property
    def variant(self) -> None:
        """All graphs of one size are alike."""
        return


class GraphCall(NamedTuple):
    """pages: where the graph lists its page numbers."""

    call: DecodeCall
    pages: torch.Tensor


class FlashInferAttnBackend(BaseAttnBackend):
    """One call a layer for all decodes and one for all prompts. Shared prefixes are read once, in eager batches.

    Only the last plan can be run, for FlashInfer keeps it; and on the stream where it was made, since FlashInfer copies
    it to the device there. Layer 0 comes first in each pass: it lists the page numbers, on the device, for all layers.
    A CUDA graph has a wrapper of its own, by the number of its rows. See `can_replay` for batches that want none.
    """

    def __init__(self, config: AttnConfig) -> None:
        """ValueError if the package is missing, or FlashInfer has no kernel for such heads, numbers or devices."""
        library()
        self._config = config
        self._shape = checked_shape(config)
        self._device = config.page_table.device
        self._has_fa3 = capability(self._device) == HOPPER
        self._num_sms = num_sms(self._device)
        self._workspace = self._bytes(self._shape.float_workspace_bytes(config.max_running_req, self._num_sms))
        self._decode_call = DecodeCall(self._shape, self._workspace)
        self._prefill_calls: dict[tuple[str, str], PrefillCall] = {}
        self._graphs: dict[int, GraphCall] = {}
        self._graph_int_workspace = self._bytes(GRAPH_INT_WORKSPACE)
        self.can_capture = self._device.type == "cuda" and triton.in_use()

    def can_replay(self, batch: Batch) -> bool:
        """Whether a batch of decodes does well as a graph, where no prefix is shared: not if that would spare much."""
        config = self._config
        bytes_per_token = 2 * config.num_kv_heads * config.head_dim * self._shape.dtype.itemsize
        return tokens_spared(self._shared(batch).ranges) * bytes_per_token < MIN_BYTES_SPARED

    def plan(self, batch: Batch, staging: Staging, padded: int | None = None) -> FlashInferMetadata:
        """See the base class. Besides `staging`, FlashInfer copies a plan for each call; a graph is one call."""
        return self._plan_eager(batch, staging) if padded is None else self._plan_graph(batch, staging, padded)

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        layer_id: int,
        meta: FlashInferMetadata,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if layer_id == 0:
            fill_kv_indices(self._config.page_table, meta.rows, meta.first_pages, meta.kv.indptr, meta.kv.pages)
        kv = self._pages_of(layer_id)
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        first = meta.num_decodes
        if meta.decode is not None and meta.prefix is not None:
            _attend_shared(q[:first], kv, meta.decode, meta.prefix, out[:first])
        elif meta.decode is not None:
            meta.decode.run(q[:first], kv, out[:first])
        if meta.extend is not None:
            meta.extend.run(q[first:], kv, out[first:])
        return out.flatten(1)

    def _shared(self, batch: Batch) -> SharedRanges:
        """What decodes read together; prompts read for themselves."""
        are_decodes = np.arange(len(batch.reqs)) < batch.num_decodes
        return choose_shared(batch.groups if self._config.shared_prefix else (), are_decodes, COST)

    def _plan_graph(self, batch: Batch, staging: Staging, padded: int) -> FlashInferMetadata:
        assert batch.num_decodes == len(batch.reqs), f"{batch.num_decodes} of {len(batch.reqs)} rows are decodes"
        known = self._graphs.get(padded)
        pages = self._graph_pages(padded) if known is None else known.pages
        runs = Runs(batch.table_idxs, np.zeros_like(batch.device_lens), batch.device_lens)
        staged = self._stage(runs.padded(padded), staging, pages, padded)
        call = self._new_graph_call(staged.kv) if known is None else known.call
        self._graphs[padded] = GraphCall(call, pages)
        call.plan(staged.kv)
        return replace(staged, num_decodes=padded, decode=call)

    def _graph_pages(self, padded: int) -> torch.Tensor:
        """Room for the pages of so many rows: graphs share it, for they run one after the other."""
        num_pages = padded * self._config.page_table.shape[1]
        largest = max((graph.pages for graph in self._graphs.values()), key=len, default=None)
        if largest is not None and len(largest) >= num_pages:
            return largest
        return torch.zeros(num_pages, dtype=torch.int32, device=self._device)

    def _new_graph_call(self, kv: PagedKV) -> DecodeCall:
        call = DecodeCall(self._shape, self._workspace, static=kv)
        call.share_int_workspace(self._workspace, self._graph_int_workspace)
        return call

    def _plan_eager(self, batch: Batch, staging: Staging) -> FlashInferMetadata:
        first, num_rows = batch.num_decodes, len(batch.reqs)
        ranges, own_begins = self._shared(batch)
        by_fa3 = self._has_fa3 and prefers_fa3(ranges, self._shape.group)
        pieces = self._pieces(ranges) if by_fa3 else ranges
        own = Runs(batch.table_idxs, own_begins.astype(np.int32), batch.device_lens)
        staged = self._stage(Runs.joined([own, _runs_of(pieces, batch)]), staging)
        if first > 0:
            self._decode_call.plan(staged.kv.part(0, first))
        return replace(
            staged,
            num_decodes=first,
            decode=self._decode_call if first > 0 else None,
            extend=self._plan_extends(batch, staged.kv.part(first, num_rows)) if first < num_rows else None,
            prefix=self._plan_prefixes(pieces, by_fa3, batch, staged.kv, staging) if pieces else None,
        )

    def _plan_extends(self, batch: Batch, kv: PagedKV) -> PrefillCall:
        lengths = batch.extend_lens[batch.num_decodes :]
        is_long = int(lengths.sum()) >= MIN_FA3_QUERIES * len(lengths)
        call = self._prefill_call("extend", "fa3" if self._has_fa3 and is_long else "fa2")
        call.plan(kv, torch.from_numpy(_indptr(lengths)), causal=True)
        return call

    def _plan_prefixes(
        self, pieces: Sequence[SharedRange], by_fa3: bool, batch: Batch, kv: PagedKV, staging: Staging
    ) -> PrefixPart:
        first, num_rows = batch.num_decodes, len(batch.reqs)
        call = self._prefill_call("prefix", "fa3" if by_fa3 else "fa2")
        lengths = np.array([len(piece.rows) for piece in pieces], np.int32)
        call.plan(kv.part(num_rows, num_rows + len(pieces)), torch.from_numpy(_indptr(lengths)), causal=False)
        parts, part_begins = merge_parts(pieces, first)
        return PrefixPart(
            call,
            q_rows=staging.add(np.concatenate([piece.rows for piece in pieces]).astype(np.int32)),
            parts=staging.add(parts),
            part_begins=staging.add(part_begins),
            results=self._new_results(len(parts)),
        )

    def _new_results(self, num_results: int) -> Partials:
        shape = self._shape
        o = torch.empty(num_results, shape.num_qo_heads, shape.head_dim, dtype=shape.dtype, device=self._device)
        lse = torch.empty(num_results, shape.num_qo_heads, dtype=torch.float32, device=self._device)
        return Partials(o, lse, arrivals=lse.new_empty(0, dtype=torch.int32))  # nobody counts them

    def _pieces(self, ranges: Sequence[SharedRange]) -> list[SharedRange]:
        return cut_ranges(ranges, self._shape.num_qo_heads, self._num_sms, self._config.page_size)

    def _stage(
        self, runs: Runs, staging: Staging, pages: torch.Tensor | None = None, padded: int | None = None
    ) -> FlashInferMetadata:
        """The runs on their way to the device; pages: room for their page numbers, new if not given."""
        size, num_runs = self._config.page_size, len(runs.rows)
        indptr, last_lens = _indptr(runs.num_pages(size)), (runs.ends - 1) % size + 1
        if pages is None:
            pages = torch.empty(int(indptr[-1]), dtype=torch.int32, device=self._device)
        values = np.concatenate([indptr, last_lens, runs.rows, runs.begins // size], dtype=np.int32)
        host, device = torch.from_numpy(values), staging.add(values, None if padded is None else len(values))
        ends = np.cumsum([num_runs + 1, num_runs, num_runs]).tolist()
        kv = PagedKV(host[: ends[0]], host[ends[0] : ends[1]], device[: ends[0]], device[ends[0] : ends[1]], pages)
        return FlashInferMetadata(device[ends[1] : ends[2]], device[ends[2] :], kv, num_decodes=0)

    def _pages_of(self, layer_id: int) -> KV:
        pool, size = self._config.kv_pool, self._config.page_size
        k, v = pool.k_cache(layer_id), pool.v_cache(layer_id)
        return k.view(-1, size, *k.shape[1:]), v.view(-1, size, *v.shape[1:])

    def _prefill_call(self, use: str, backend: str) -> PrefillCall:
        """Made when it is first wanted: each has buffers of its own, and FlashInfer may have to compile its kernel."""
        call = self._prefill_calls.get((use, backend))
        if call is None:
            call = self._prefill_calls[use, backend] = PrefillCall(self._shape, self._workspace, backend)
        return call

    def _bytes(self, num_bytes: int) -> torch.Tensor:
        return torch.zeros(num_bytes, dtype=torch.uint8, device=self._device)


def _attend_shared(q: torch.Tensor, kv: KV, decode: DecodeCall, prefix: PrefixPart, out: torch.Tensor) -> None:
    """q [D, Hq, D] to out, alike: each row to its own tokens, the pieces' rows to theirs, joined."""
    num_rows, (o, lse, *_) = len(q), prefix.results
    decode.run(q, kv, o[:num_rows], lse[:num_rows])
    prefix.call.run(q.index_select(0, prefix.q_rows), kv, o[num_rows:], lse[num_rows:])
    merge_partials(out.flatten(1), prefix.results, prefix.parts, prefix.part_begins)


def _runs_of(ranges: Sequence[SharedRange], batch: Batch) -> Runs:
    """Each range by the page table of its first row."""
    rows = [batch.table_idxs[rows[0]] for rows, _, _ in ranges]
    ends = ([begin for _, begin, _ in ranges], [end for _, _, end in ranges])
    return Runs(*(np.array(values, np.int32) for values in (rows, *ends)))


def _indptr(lengths: Int32Array) -> Int32Array:
    """[N + 1]: where each of lengths [N] begins, one after the other."""
    return np.concatenate([[0], np.cumsum(lengths)], dtype=np.int32)
