"""Attention of tiles of queries to the pool, read through the page table: prompts, and prefixes that rows share.

A tile is some queries and the G heads of each that share a KV head: one matrix of M rows. It is bound by arithmetic.

Shape letters: T tokens, I items, C columns, Hkv KV heads, G query heads that share one, D head dim, M rows of a tile,
N keys of a block.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from minisgl.kernel.attention_work import TILE_FIELDS, Partials, TileConfig, Weighing, tile_config
from minisgl.kernel.triton.blocks import (
    add_sinks,
    attend_block,
    in_base_two,
    load_block,
    load_item,
    load_pages,
    slots_of,
)
from minisgl.kernel.triton.launch import begin_next, programmatic, wait_for_last


@triton.jit(do_not_specialize=["table_stride"])
def _tiles(
    q, queries, k_cache, v_cache, page_table, items, columns, out, part_o, part_lse, sinks,
    scale, q_stride, slot_stride, table_stride,
    PAGE_SIZE: tl.constexpr, NUM_KV_HEADS: tl.constexpr, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr,
    FIELDS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    STAGES: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, CAP: tl.constexpr, PRECISION: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(0) // NUM_KV_HEADS
    kv_head = tl.program_id(0) % NUM_KV_HEADS
    in_tile = tl.arange(0, BLOCK_M)
    heads = kv_head * GROUP + in_tile % GROUP
    dims = tl.arange(0, BLOCK_D)
    k_head = k_cache + kv_head * HEAD_DIM
    v_head = v_cache + kv_head * HEAD_DIM
    if sinks is not None:
        own_sinks = tl.load(sinks + heads)  # weights, which no kernel writes
    first_item = tl.load(columns + column)
    last_item = tl.load(columns + column + 1)
    first, count, table_row, begin, end, partial, position = load_item(items, first_item, last_item, FIELDS)
    table = page_table + table_row.to(tl.int64) * table_stride
    pages = load_pages(table, begin + tl.arange(0, BLOCK_N), end, PAGE_SIZE)
    wait_for_last(PDL)
    begin_next(PDL)  # not before: a decode beside this one takes it that all kernels before this one are done
    for item in range(first_item, last_item):
        next_first, next_count, next_table_row, next_begin, next_end, next_partial, next_position = load_item(
            items, item + 1, last_item, FIELDS
        )
        is_query = in_tile < count * GROUP
        rows = tl.load(queries + first + in_tile // GROUP, mask=is_query, other=0)
        mask = is_query[:, None] & (dims < HEAD_DIM)[None, :]
        q_tile = tl.load(q + (rows * q_stride + heads * HEAD_DIM)[:, None] + dims[None, :], mask=mask, other=0.0)
        best = tl.full([BLOCK_M], float("-inf"), tl.float32)
        total = tl.zeros([BLOCK_M], tl.float32)
        acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
        if CAUSAL:
            own_position = position + in_tile // GROUP
            seen_by_all = tl.maximum(tl.minimum(end, position + 1) - begin, 0)
        else:
            own_position = tl.zeros([BLOCK_M], tl.int32) + end
            seen_by_all = end - begin
        for start in tl.range(begin, end, BLOCK_N, num_stages=STAGES):
            positions = start + tl.arange(0, BLOCK_N)
            next_pages = load_pages(table, positions + BLOCK_N, end, PAGE_SIZE)
            at = slots_of(pages, positions, end, PAGE_SIZE)[:, None] * slot_stride + dims[None, :]
            keys, values = load_block(k_head, v_head, at, dims, HEAD_DIM, BLOCK_D)
            seen = (positions < end)[None, :] & (positions[None, :] <= own_position[:, None])
            is_masked = start + BLOCK_N > begin + seen_by_all  # the last blocks alone
            if WINDOW:
                seen = seen & (positions[None, :] > own_position[:, None] - WINDOW)
                is_masked = is_masked | (start < position + count - WINDOW)  # the first, for the last query
            best, total, acc = attend_block(
                q_tile, keys, values, seen, is_masked, best, total, acc, scale, CAP, PRECISION
            )
            pages = next_pages
        # Under way while this item is written.
        table = page_table + next_table_row.to(tl.int64) * table_stride
        pages = load_pages(table, next_begin + tl.arange(0, BLOCK_N), next_end, PAGE_SIZE)
        if sinks is not None:
            total = tl.where(partial < 0, add_sinks(total, best, own_sinks), total)
        total = tl.where(total > 0, total, 1.0)  # it is 0 where nothing is seen
        acc = acc / total[:, None]
        if partial < 0:
            o = out + ((rows * NUM_KV_HEADS * GROUP + heads) * HEAD_DIM)[:, None] + dims[None, :]
            tl.store(o, acc.to(out.dtype.element_ty), mask=mask)
        else:
            at = (partial + in_tile // GROUP) * (NUM_KV_HEADS * GROUP) + heads
            tl.store(part_o + at[:, None] * HEAD_DIM + dims[None, :], acc, mask=mask)
            tl.store(part_lse + at, best + tl.log2(total), mask=is_query)
        first, count, begin, end, partial, position = (
            next_first, next_count, next_begin, next_end, next_partial, next_position
        )  # fmt: skip


def tile_attention(
    q: torch.Tensor,
    queries: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    page_table: torch.Tensor,
    page_size: int,
    items: torch.Tensor,
    columns: torch.Tensor,
    out: torch.Tensor,
    partials: Partials,
    weighing: Weighing,
    causal: bool,
    window: int = 0,
    config: TileConfig | None = None,
) -> None:
    """See `torch_attention.tile_attention`. config: other than the one that is best as a rule."""
    num_kv_heads, head_dim = k_cache.shape[1:]
    config = config or tile_config(q.dtype, head_dim)
    scale, cap = in_base_two(weighing)
    pdl = programmatic()
    _tiles[((len(columns) - 1) * num_kv_heads,)](
        q, queries, k_cache, v_cache, page_table, items, columns, out, partials.o, partials.lse,
        weighing.sinks, scale, q.stride(0), k_cache.stride(0), page_table.stride(0),
        PAGE_SIZE=page_size, NUM_KV_HEADS=num_kv_heads, GROUP=q.shape[1] // num_kv_heads, HEAD_DIM=head_dim,
        FIELDS=TILE_FIELDS, BLOCK_M=config.rows, BLOCK_N=config.block, BLOCK_D=triton.next_power_of_2(head_dim),
        STAGES=config.stages, CAUSAL=causal, WINDOW=window, CAP=cap,
        PRECISION="ieee" if q.dtype == torch.float32 else "tf32", PDL=pdl,
        num_warps=config.num_warps, launch_pdl=pdl,
    )  # fmt: skip
