"""Who computes what in a layer of experts: the choice for every token, and tokens in order of their experts.

A pair is a token and one of its experts, number t * K + k. The host need not know how many pairs an expert has: tables
are as long as they could have to be, and a CUDA graph serves whatever tokens choose.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from minisgl.kernel.triton.launch import begin_next, programmatic, wait_for_last

PAIRS_BLOCK = 1024


class ExpertPlan(NamedTuple):
    """order: [P] int32, the pairs by expert, those of one in order. tiles: [N, 3] int32, of one expert each.

    A tile is (expert, first place in the order, place after its last); expert -1: there is nothing to do.
    """

    order: torch.Tensor
    tiles: torch.Tensor


def route(logits: torch.Tensor, num_chosen: int, normalised: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """See `torch_moe.route`."""
    assert logits.stride(1) == 1, logits.stride()
    num_tokens, num_experts = logits.shape
    weights = torch.empty((num_tokens, num_chosen), dtype=torch.float32, device=logits.device)
    experts = torch.empty((num_tokens, num_chosen), dtype=torch.int32, device=logits.device)
    if num_tokens > 0:
        _route[(num_tokens,)](
            *(logits, weights, experts, logits.stride(0), num_experts, num_chosen),
            *(triton.next_power_of_2(num_experts), triton.next_power_of_2(num_chosen), normalised, programmatic()),
            num_warps=1,
            launch_pdl=programmatic(),
        )
    return weights, experts


def max_tiles(num_pairs: int, num_experts: int, tile: int) -> int:
    """How many tiles of up to `tile` pairs there can be: all experts but for one full tile have some left over."""
    present = min(num_pairs, num_experts)
    return (num_pairs + present * (tile - 1)) // tile


def plan_experts(experts: torch.Tensor, num_experts: int, tile: int) -> ExpertPlan:
    """experts: [T, K] int32, T at least 1. tile: how many pairs a tile holds at most."""
    assert experts.is_contiguous(), experts.stride()
    num_pairs = experts.numel()
    order = torch.empty(num_pairs, dtype=torch.int32, device=experts.device)
    num_tiles = max_tiles(num_pairs, num_experts, tile)
    tiles = torch.empty((num_tiles, 3), dtype=torch.int32, device=experts.device)
    block = min(PAIRS_BLOCK, triton.next_power_of_2(num_pairs))
    _plan_experts[(num_experts,)](
        *(experts, order, tiles, num_pairs, num_tiles),
        *(tile, triton.next_power_of_2(num_experts), max(block, 16), programmatic()),
        num_warps=4,
        launch_pdl=programmatic(),
    )
    return ExpertPlan(order, tiles)


@triton.jit
def _route(
    logits_ptr,
    weights_ptr,
    experts_ptr,
    stride,
    num_experts,
    num_chosen,
    EXPERTS: tl.constexpr,
    CHOSEN: tl.constexpr,
    NORMALISED: tl.constexpr,
    PDL: tl.constexpr,
):
    """One token: its experts one by one, each the largest that is left."""
    begin_next(PDL)
    token = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, EXPERTS)
    places = tl.arange(0, CHOSEN)
    wait_for_last(PDL)
    logits = tl.load(logits_ptr + token * stride + columns, mask=columns < num_experts, other=float("-inf"))
    logits = logits.to(tl.float32)
    largest = tl.max(logits)
    total = tl.sum(tl.exp(logits - largest))
    left = logits
    ranked = tl.full((CHOSEN,), float("-inf"), tl.float32)
    experts = tl.zeros((CHOSEN,), tl.int32)
    for place in range(num_chosen):
        # Where nothing compares, as with NaN, any expert does, but it must be one.
        expert = tl.minimum(tl.argmax(left, axis=0), num_experts - 1)
        logit = tl.sum(tl.where(columns == expert, logits, 0.0))
        ranked = tl.where(places == place, logit, ranked)
        experts = tl.where(places == place, expert, experts)
        left = tl.where(columns == expert, float("-inf"), left)
    weights = tl.exp(ranked - largest)
    weights = weights / tl.sum(weights) if NORMALISED else weights / total
    at = token * num_chosen + places
    tl.store(weights_ptr + at, weights, mask=places < num_chosen)
    tl.store(experts_ptr + at, experts, mask=places < num_chosen)


@triton.jit(do_not_specialize=["num_pairs", "num_tiles"])
def _plan_experts(
    experts_ptr,
    order_ptr,
    tiles_ptr,
    num_pairs,
    num_tiles,
    TILE: tl.constexpr,
    EXPERTS: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    """One expert: all count all pairs, which spares a second kernel; then each writes its own part of the tables."""
    begin_next(PDL)
    me = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    everyone = tl.arange(0, EXPERTS)
    wait_for_last(PDL)
    counts = tl.zeros((EXPERTS,), tl.int32)
    for first in range(0, num_pairs, BLOCK):
        inside = first + lanes < num_pairs
        experts = tl.load(experts_ptr + first + lanes, mask=inside, other=0)
        counts += tl.histogram(experts, EXPERTS, mask=inside)
    tiles = (counts + TILE - 1) // TILE
    before = everyone < me
    start = tl.sum(tl.where(before, counts, 0))
    end = start + tl.sum(tl.where(everyone == me, counts, 0))
    first_tile = tl.sum(tl.where(before, tiles, 0))
    my_tiles = tl.sum(tl.where(everyone == me, tiles, 0))

    place = start
    for first in range(0, num_pairs, BLOCK):
        inside = first + lanes < num_pairs
        experts = tl.load(experts_ptr + first + lanes, mask=inside, other=-1)
        mine = (experts == me).to(tl.int32)
        tl.store(order_ptr + place + tl.cumsum(mine) - 1, first + lanes, mask=mine != 0)
        place += tl.sum(mine)

    for tile in range(0, my_tiles, BLOCK):
        held = tile + lanes < my_tiles
        at = tiles_ptr + (first_tile + tile + lanes) * 3
        begin = start + (tile + lanes) * TILE
        tl.store(at, tl.full((BLOCK,), 0, tl.int32) + me, mask=held)
        tl.store(at + 1, begin, mask=held)
        tl.store(at + 2, tl.minimum(begin + TILE, end), mask=held)
    if me == tl.num_programs(0) - 1:
        for tile in range(first_tile + my_tiles, num_tiles, BLOCK):
            empty = tile + lanes < num_tiles
            tl.store(tiles_ptr + (tile + lanes) * 3, tl.full((BLOCK,), -1, tl.int32), mask=empty)
