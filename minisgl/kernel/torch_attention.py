"""Attention in parts over the paged pool, in plain PyTorch: the reference for the kernels of `kernel.triton`.

Work comes in items (`attention.decode_plan`); how these are dealt out to programs (columns) changes no result.

Shape letters: T tokens, B rows, I items, C columns, E queries listed, N partial results, Hq query heads, Hkv KV heads,
D head dim, R page-table rows, P pages a row.
"""

from __future__ import annotations

import itertools
import math

import torch

from minisgl.kernel.attention_work import ITEM_FIELDS, TILE_FIELDS, Partials, Weighing


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
) -> None:
    """Attention of one query a row to the ranges of its items; a row of no tokens gets zeros.

    q [B, Hq, D], rows any stride apart; k_cache, v_cache [slots, Hkv, D] of q's dtype; page_table [R, P] int32.
    items [>= I * ITEM_FIELDS] int32 (see there); columns [C + 1] int32, the last of which is I.
    Writes out [B, Hq * D] of q's dtype for rows whose items are counted, and for others partial result i of item i,
    which knows of no sinks.
    """
    for index, fields in enumerate(_fields(items, ITEM_FIELDS, columns)):
        row, table_row, begin, end, first, count = fields
        if count == 0:
            keys, values = _read(k_cache, v_cache, page_table[table_row], page_size, begin, end)
            state = _attend(q[row : row + 1], keys, values, weighing._replace(sinks=None))
            partials.o[index], partials.lse[index] = (part[0] for part in state)
        elif index == first:  # the items of a row follow one another
            last_end = int(items[(first + count - 1) * ITEM_FIELDS + 3])
            keys, values = _read(k_cache, v_cache, page_table[table_row], page_size, begin, last_end)
            out[row] = _attend(q[row : row + 1], keys, values, weighing)[0].flatten()


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
) -> None:
    """Attention of a tile of queries to one range of positions, which all of them read in the same slots.

    q [T, Hq, D]; queries [E] int32 rows of q; items [>= I * TILE_FIELDS] int32 (see there), a tile of those listed
    each. causal: the tile's queries have consecutive positions, and see none beyond their own; every one sees a key.
    window: and then no more positions than so many, their own included; 0: all.
    Writes rows of out [T, Hq * D], or partial results one after the other. The rest as in `paged_decode`.
    """
    for first, count, table_row, begin, end, partial, position in _fields(items, TILE_FIELDS, columns):
        rows = queries[first : first + count].long()
        keys, values = _read(k_cache, v_cache, page_table[table_row], page_size, begin, end)
        unseen = None
        if causal:
            age = torch.arange(position, position + count, device=q.device)[:, None]
            age = age - torch.arange(begin, end, device=q.device)
            unseen = (age < 0) | (age >= window) if window else age < 0
        is_whole = partial < 0
        o, lse = _attend(q[rows], keys, values, weighing if is_whole else weighing._replace(sinks=None), unseen)
        if is_whole:
            out[rows] = o.flatten(1).to(out.dtype)
        else:
            partials.o[partial : partial + count], partials.lse[partial : partial + count] = o, lse


def merge_partials(
    out: torch.Tensor,
    partials: Partials,
    parts: torch.Tensor,
    part_begins: torch.Tensor,
    sinks: torch.Tensor | None = None,
) -> None:
    """Join partial results by their log-sum-exp, in float32, and each row's sinks [Hq] (see `Weighing`) if given.

    parts [N] int32: which ones, row by row; part_begins [B + 1] int32: where each row's begin. Rows without any are
    left alone. Writes out [B, Hq * D].
    """
    for row, (begin, end) in enumerate(itertools.pairwise(part_begins.tolist())):
        if end > begin:
            which = parts[begin:end].long()
            lse = partials.lse[which] * math.log(2)
            lses = lse if sinks is None else torch.cat([lse, sinks[None].float()])
            weights = torch.exp(lse - lses.logsumexp(0))
            out[row] = (partials.o[which] * weights[..., None]).sum(0).flatten().to(out.dtype)


def _fields(items: torch.Tensor, num_fields: int, columns: torch.Tensor) -> list[list[int]]:
    fields: list[list[int]] = items[: int(columns[-1]) * num_fields].view(-1, num_fields).tolist()
    return fields


def _read(
    k_cache: torch.Tensor, v_cache: torch.Tensor, pages: torch.Tensor, page_size: int, begin: int, end: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values [N, Hkv, D] float32 of positions [begin, end) of the row with these pages."""
    positions = torch.arange(begin, end, device=pages.device)
    slots = pages[positions // page_size].long() * page_size + positions % page_size
    return k_cache[slots].float(), v_cache[slots].float()


def _attend(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, weighing: Weighing, unseen: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """q [Q, Hq, D], keys and values [N, Hkv, D], unseen [Q, N]: o [Q, Hq, D], lse [Q, Hq], float32;
    zeros and -inf for a query that sees nothing."""
    num_queries, num_heads, head_dim = q.shape
    grouped = q.float().view(num_queries, keys.shape[1], -1, head_dim)
    scores = torch.einsum("qhgd,nhd->qhgn", grouped, keys) * weighing.scale
    if weighing.softcap:
        scores = weighing.softcap * torch.tanh(scores / weighing.softcap)
    if unseen is not None:
        scores = scores.masked_fill(unseen[:, None, None], float("-inf"))
    lse = scores.logsumexp(-1)
    if weighing.sinks is not None:
        lse = lse.logaddexp(weighing.sinks.float().view(lse.shape[1:]))
    weights = torch.exp(scores - lse.clamp(min=torch.finfo(torch.float32).min)[..., None])  # 0 where nothing is seen
    o = torch.einsum("qhgn,nhd->qhgd", weights, values)
    return o.reshape(q.shape), lse.reshape(num_queries, num_heads) / math.log(2)
