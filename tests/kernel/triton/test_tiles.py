"""Tiles of queries by the Triton kernel, and the join of what they leave, against the reference."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.paged_work import PagedRows, assert_joins_as
from support.pairs import in_pairs
from support.windowed_layers import LAYERS

from minisgl.attention.decode_plan import TileWork, plan_extends, plan_own, plan_shared
from minisgl.attention.shared_prefix import SharedRange
from minisgl.kernel import torch_attention
from minisgl.kernel.attention_work import TileConfig, Weighing, tile_config
from minisgl.kernel.triton import merge, tiles

SMALL = TileConfig(rows=16, block=16, num_warps=4, stages=2)
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def check(
    case: PagedRows,
    work: TileWork,
    num_partials: int,
    causal: bool,
    config: TileConfig = SMALL,
    window: int = 0,
    softcap: float = 0.0,
    sinks: torch.Tensor | None = None,
) -> None:
    queries, items, columns = map(case.send, work[:3])
    arguments, weighing = (case.q, queries, *case.cache, items, columns), Weighing(case.scale, softcap, sinks)
    assert_joins_as(
        case,
        num_partials,
        lambda out, partials: tiles.tile_attention(*arguments, out, partials, weighing, causal, window, config),
        lambda out, partials: torch_attention.tile_attention(*arguments, out, partials, weighing, causal, window),
    )


def shared_work(case: PagedRows, lens: list[int], shared: int, num_columns: int, config: TileConfig) -> TileWork:
    """All rows read the first `shared` tokens together."""
    rows = np.arange(len(lens))
    own = plan_own(case.table_idxs, np.full(len(lens), shared), np.array(lens), num_columns, config.block)
    tile_rows = config.rows * case.num_kv_heads // case.num_qo_heads
    return plan_shared(own, [SharedRange(rows, 0, shared)], case.table_idxs, tile_rows, num_columns, config.block)


@in_pairs(group=[1, 3, 8], dtype=[torch.float32, torch.float16], num_columns=[1, 4])
def test_what_rows_share(group: int, dtype: torch.dtype, num_columns: int):
    lens, shared = [72, 80, 75, 73, 90, 76, 77], 72
    case = PagedRows(lens, shared=shared, group=group, dtype=dtype, device=DEVICE)
    work = shared_work(case, lens, shared, num_columns, SMALL)
    assert work.parts is not None
    check(case, work, int(work.parts.max()) + 1, causal=False)


@in_pairs(head_dim=[24, 64], page_size=[1, 7], num_columns=[1, 20])
def test_prompts_after_cached_tokens(head_dim: int, page_size: int, num_columns: int):
    cached, lens = np.array([0, 37, 5]), np.array([21, 44, 6])
    num_queries = int((lens - cached).sum())
    shape = {"head_dim": head_dim, "page_size": page_size, "num_queries": num_queries, "device": DEVICE}
    case = PagedRows(lens.tolist(), **shape)
    work = plan_extends(case.table_idxs, cached, lens, 5, num_columns, SMALL.block)
    check(case, work, 100, causal=True)


@pytest.mark.parametrize("num_columns", [1, 20])
@pytest.mark.parametrize("window", [1, 7, 18, 40])
def test_prompts_see_no_further_than_their_window(window: int, num_columns: int):
    cached, lens = np.array([0, 37, 5]), np.array([21, 44, 6])
    case = PagedRows(lens.tolist(), num_queries=int((lens - cached).sum()), device=DEVICE)
    work = plan_extends(case.table_idxs, cached, lens, 5, num_columns, SMALL.block, window)
    check(case, work, 100, causal=True, window=window)


@pytest.mark.parametrize("num_columns", [1, 20])
@pytest.mark.parametrize("causal", [True, False])
def test_capped_scores_and_sinks(causal: bool, num_columns: int):
    """A sink is no part of a partial result."""
    if causal:
        cached, lens = np.array([0, 37, 5]), np.array([21, 44, 6])
        case = PagedRows(lens.tolist(), num_queries=int((lens - cached).sum()), device=DEVICE)
        work = plan_extends(case.table_idxs, cached, lens, 5, num_columns, SMALL.block)
    else:
        case = PagedRows([72, 80, 75], shared=72, device=DEVICE)
        work = shared_work(case, [72, 80, 75], 72, num_columns, SMALL)
    case.scale = 4.0
    check(case, work, 100, causal=causal, softcap=5.0, sinks=case.make_sinks())


@pytest.mark.parametrize("has_sinks", [False, True])
@pytest.mark.parametrize("counts", [[2, 1, 3], [9, 0, 1]])
def test_partial_results_are_joined_row_by_row(counts: list[int], has_sinks: bool):
    case = PagedRows([1] * 3, head_dim=24, device=DEVICE)
    begins = case.send(np.cumsum([0, *counts]).astype(np.int32))
    total = sum(counts)
    parts = case.send(np.random.default_rng(0).permutation(total).astype(np.int32))
    generator = torch.Generator().manual_seed(0)
    results = []
    for join in (merge.merge_partials, torch_attention.merge_partials):
        out, partials = case.outputs(total)
        partials.o.copy_(torch.randn(partials.o.shape, generator=generator.manual_seed(1)))
        partials.lse.copy_(torch.randn(partials.lse.shape, generator=generator.manual_seed(2)) * 9)
        partials.lse[parts[0]] = -float("inf")  # a tile of a prompt that saw nothing of one cut
        join(out, partials, parts, begins, case.make_sinks() if has_sinks else None)
        results.append(out)
    torch.testing.assert_close(*results, equal_nan=True)


@pytest.mark.gpu
@pytest.mark.parametrize("page_size", [1, 7, 16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("group", [1, 2, 4, 5, 8])
@pytest.mark.parametrize("head_dim", [64, 96, 128, 256])
def test_the_shapes_of_models(head_dim: int, group: int, dtype: torch.dtype, page_size: int):
    config, lens = tile_config(dtype, head_dim), [1233 + n for n in range(70)]
    shape = {"group": group, "num_kv_heads": 8, "head_dim": head_dim, "page_size": page_size}
    case = PagedRows(lens, shared=1232, **shape, dtype=dtype, device=DEVICE)
    work = shared_work(case, lens, 1232, 16, config)
    assert work.parts is not None
    check(case, work, int(work.parts.max()) + 1, causal=False, config=config)
    cached, lens = np.array([0, 500]), np.array([300, 700])
    case = PagedRows(lens.tolist(), num_queries=500, **shape, dtype=dtype, device=DEVICE)
    for num_columns in (1, 40):
        work = plan_extends(case.table_idxs, cached, lens, config.rows // group, num_columns, config.block)
        check(case, work, 4000, causal=True, config=config)


@pytest.mark.gpu
@pytest.mark.parametrize("windowed", [False, True], ids=["full", "windowed"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", LAYERS)
def test_the_layers_of_models_with_windows(name: str, dtype: torch.dtype, windowed: bool):
    layer, cached, lens = LAYERS[name], np.array([0, 4000]), np.array([300, 4200])
    config, window = tile_config(dtype, layer.head_dim), layer.window if windowed else 0
    case = PagedRows(lens.tolist(), num_queries=500, **layer.heads, page_size=16, dtype=dtype, device=DEVICE)
    sinks = case.make_sinks() if layer.has_sinks else None
    for num_columns in (1, 40):
        pieces = (config.rows // layer.group, num_columns, config.block)
        work = plan_extends(case.table_idxs, cached, lens, *pieces, window)
        check(case, work, 8000, causal=True, config=config, window=window, softcap=layer.softcap, sinks=sinks)
