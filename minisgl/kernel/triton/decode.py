"""Attention of one query a row to the pool, read through the page table: bound by memory, so split evenly.

Every program has a column of work items for one KV head: as many tokens as any other program, whatever rows they
belong to (`attention.decode_plan`). All programs run at once, and one that completes a row joins what the others left.

Shape letters: B rows, I items, C columns, Hq query heads, Hkv KV heads, G query heads that share one, D head dim,
N keys of a block, R page-table rows, P pages a row.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from minisgl.kernel.attention_work import ITEM_FIELDS, DecodeConfig, Partials, Weighing, decode_config
from minisgl.kernel.triton.blocks import (
    absorb_parts,
    add_sinks,
    attend_block,
    in_base_two,
    load_block,
    load_item,
    load_pages,
    slots_of,
)
from minisgl.kernel.triton.launch import begin_next, programmatic, wait_for_last

# Partial results that are read together when a row is joined: of so many heads a warp, and no more of one than that.
HEADS_AT_ONCE, PARTS_AT_ONCE = 32, 16


@triton.jit(do_not_specialize=["table_stride"])
def _decode(
    q, k_cache, v_cache, page_table, items, columns, out, part_o, part_lse, arrivals, sinks,
    scale, q_stride, slot_stride, table_stride,
    PAGE_SIZE: tl.constexpr, NUM_KV_HEADS: tl.constexpr, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr,
    FIELDS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_G: tl.constexpr, STAGES: tl.constexpr, AT_ONCE: tl.constexpr, CAP: tl.constexpr, PRECISION: tl.constexpr,
    BESIDE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    if not BESIDE:  # else the join would take its places, all on few processors, while tiles run
        begin_next(PDL)
    column = tl.program_id(0) // NUM_KV_HEADS
    kv_head = tl.program_id(0) % NUM_KV_HEADS
    is_head = tl.arange(0, BLOCK_M) < GROUP
    dims = tl.arange(0, BLOCK_D)
    heads = kv_head * GROUP + tl.arange(0, BLOCK_M)
    in_tile = is_head[:, None] & (dims < HEAD_DIM)[None, :]
    k_head = k_cache + kv_head * HEAD_DIM
    v_head = v_cache + kv_head * HEAD_DIM
    if sinks is not None:
        own_sinks = tl.load(sinks + heads, mask=is_head, other=0.0)  # weights, which no kernel writes
    # The plan and the page table are of this step's beginning: no kernel that may still run writes them.
    first_item = tl.load(columns + column)
    last_item = tl.load(columns + column + 1)
    row, table_row, begin, end, first, count = load_item(items, first_item, last_item, FIELDS)
    table = page_table + table_row.to(tl.int64) * table_stride
    pages = load_pages(table, begin + tl.arange(0, BLOCK_N), end, PAGE_SIZE)
    if not BESIDE:
        wait_for_last(PDL)
    for item in range(first_item, last_item):
        q_tile = tl.load(q + row * q_stride + heads[:, None] * HEAD_DIM + dims[None, :], mask=in_tile, other=0.0,
                         cache_modifier=".cg")  # fmt: skip
        next_row, next_table_row, next_begin, next_end, next_first, next_count = load_item(
            items, item + 1, last_item, FIELDS
        )
        best = tl.full([BLOCK_M], float("-inf"), tl.float32)
        total = tl.zeros([BLOCK_M], tl.float32)
        acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
        for start in tl.range(begin, end, BLOCK_N, num_stages=STAGES):
            positions = start + tl.arange(0, BLOCK_N)
            next_pages = load_pages(table, positions + BLOCK_N, end, PAGE_SIZE)
            at = slots_of(pages, positions, end, PAGE_SIZE)[:, None] * slot_stride + dims[None, :]
            keys, values = load_block(k_head, v_head, at, dims, HEAD_DIM, BLOCK_D)
            seen = (positions < end)[None, :]
            best, total, acc = attend_block(q_tile, keys, values, seen, True, best, total, acc, scale, CAP, PRECISION)
            pages = next_pages
        # Under way while this item is written.
        table = page_table + next_table_row.to(tl.int64) * table_stride
        pages = load_pages(table, next_begin + tl.arange(0, BLOCK_N), next_end, PAGE_SIZE)
        if sinks is not None:
            total = tl.where(count == 1, add_sinks(total, best, own_sinks), total)
        total = tl.where(total > 0, total, 1.0)  # it is 0 where nothing is seen
        acc = acc / total[:, None]
        if count == 1:  # it is all there is of this row
            o = out + (row * NUM_KV_HEADS * GROUP + heads)[:, None] * HEAD_DIM + dims[None, :]
            tl.store(o, acc.to(out.dtype.element_ty), mask=in_tile)
        else:
            at_head = item * (NUM_KV_HEADS * GROUP) + heads
            tl.store(part_o + at_head[:, None] * HEAD_DIM + dims[None, :], acc, mask=in_tile)
            tl.store(part_lse + at_head, best + tl.log2(total), mask=is_head)
            if count > 1:
                tl.debug_barrier()  # all threads have stored before one of them tells of it
                arrived = tl.atomic_add(arrivals + row * NUM_KV_HEADS + kv_head, 1, sem="acq_rel")
                if arrived == count - 1:
                    tl.store(arrivals + row * NUM_KV_HEADS + kv_head, 0)
                    in_group = tl.arange(0, BLOCK_G) < GROUP
                    joined_heads = kv_head * GROUP + tl.arange(0, BLOCK_G)
                    whole = tl.full([BLOCK_G], float("-inf"), tl.float32)
                    sums = tl.zeros([BLOCK_G], tl.float32)
                    joined = tl.zeros([BLOCK_G, BLOCK_D], tl.float32)
                    for part in range(first, first + count, AT_ONCE):
                        parts = part + tl.arange(0, AT_ONCE)
                        whole, sums, joined = absorb_parts(
                            part_o, part_lse, parts, parts < first + count, joined_heads, in_group, dims,
                            whole, sums, joined, NUM_KV_HEADS * GROUP, HEAD_DIM,
                        )  # fmt: skip
                    if sinks is not None:
                        sums = add_sinks(sums, whole, tl.load(sinks + joined_heads, mask=in_group, other=0.0))
                    joined = joined / tl.where(in_group, sums, 1.0)[:, None]
                    o = out + (row * NUM_KV_HEADS * GROUP + joined_heads)[:, None] * HEAD_DIM + dims[None, :]
                    inside = in_group[:, None] & (dims < HEAD_DIM)[None, :]
                    tl.store(o, joined.to(out.dtype.element_ty), mask=inside)
        row, begin, end, first, count = next_row, next_begin, next_end, next_first, next_count
    if BESIDE and tl.program_id(0) == tl.num_programs(0) - 1:
        wait_for_last(PDL)  # once this kernel is done, the tiles are too


def paged_decode(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    page_table: torch.Tensor,
    page_size: int,
    items: torch.Tensor,
    columns: torch.Tensor,
    out: torch.Tensor,
    partials: Partials,
    weighing: Weighing,
    config: DecodeConfig | None = None,
) -> None:
    """See `torch_attention.paged_decode`. config: other than the one that is best as a rule."""
    num_kv_heads, head_dim = k_cache.shape[1:]
    config = config or decode_config(q.dtype, head_dim)
    group = q.shape[1] // num_kv_heads
    block_g = triton.next_power_of_2(group)
    scale, cap = in_base_two(weighing)
    pdl = programmatic()
    _decode[((len(columns) - 1) * num_kv_heads,)](
        q, k_cache, v_cache, page_table, items, columns, out, partials.o, partials.lse, partials.arrivals,
        weighing.sinks, scale, q.stride(0), k_cache.stride(0), page_table.stride(0),
        PAGE_SIZE=page_size, NUM_KV_HEADS=num_kv_heads, GROUP=group, HEAD_DIM=head_dim,
        FIELDS=ITEM_FIELDS, BLOCK_M=max(16, block_g), BLOCK_N=config.block,
        BLOCK_D=triton.next_power_of_2(head_dim), STAGES=config.stages, BLOCK_G=block_g,
        AT_ONCE=max(1, min(PARTS_AT_ONCE, HEADS_AT_ONCE * config.num_warps // block_g)),
        CAP=cap, PRECISION="ieee" if q.dtype == torch.float32 else "tf32",
        BESIDE=partials.beside, PDL=pdl,
        num_warps=config.num_warps, maxnreg=config.registers, launch_pdl=pdl,
    )  # fmt: skip
