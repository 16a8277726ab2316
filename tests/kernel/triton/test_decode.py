"""Decodes by the Triton kernel against the reference, whichever way they are cut."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.paged_work import PagedRows, assert_joins_as
from support.pairs import in_pairs
from support.windowed_layers import LAYERS

from minisgl.attention.decode_plan import plan_own
from minisgl.kernel import torch_attention
from minisgl.kernel.attention_work import ITEM_FIELDS, DecodeConfig, Weighing, decode_config
from minisgl.kernel.triton import decode

SMALL = DecodeConfig(block=16, num_warps=4, stages=2, programs_per_sm=1)
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
LENS = [40, 17, 1, 90]


def check(
    case: PagedRows,
    lens: list[int],
    begins: list[int],
    num_columns: int,
    config: DecodeConfig = SMALL,
    softcap: float = 0.0,
    sinks: torch.Tensor | None = None,
    is_whole: bool = False,
) -> None:
    work = plan_own(case.table_idxs, np.array(begins), np.array(lens), num_columns, config.block, is_whole)
    items, columns = map(case.send, work)
    arguments, weighing = (case.q, *case.cache, items, columns), Weighing(case.scale, softcap, sinks)
    assert_joins_as(
        case,
        len(work.items) // ITEM_FIELDS,
        lambda out, partials: decode.paged_decode(*arguments, out, partials, weighing, config),
        lambda out, partials: torch_attention.paged_decode(*arguments, out, partials, weighing),
    )


@pytest.mark.parametrize("num_columns", [1, 3, 7, 40])
def test_rows_are_the_same_however_they_are_cut(num_columns: int):
    check(PagedRows(LENS, device=DEVICE), LENS, [0] * 4, num_columns)


@pytest.mark.parametrize("page_size", [1, 7, 16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["float32", "float16"])
def test_every_page_size(page_size: int, dtype: torch.dtype):
    check(PagedRows(LENS, page_size=page_size, dtype=dtype, device=DEVICE), LENS, [0] * 4, 3)


@pytest.mark.parametrize("head_dim", [24, 64])
@pytest.mark.parametrize("group", [1, 4, 5, 16])
def test_every_shape_of_heads(group: int, head_dim: int):
    check(PagedRows(LENS, group=group, head_dim=head_dim, device=DEVICE), LENS, [0] * 4, 3)


def test_rows_that_begin_later_leave_partial_results():
    check(PagedRows(LENS, device=DEVICE), LENS, [8, 0, 0, 48], 4)


def test_rows_of_nothing_are_zeros():
    case = PagedRows([5, 1, 5], device=DEVICE)
    check(case, [5, 0, 5], [0, 0, 0], 2)


@pytest.mark.parametrize("num_columns", [1, 7])
def test_scores_are_capped(num_columns: int):
    case = PagedRows(LENS, device=DEVICE)
    case.scale = 4.0  # so that many are near the cap and beyond
    check(case, LENS, [0] * 4, num_columns, softcap=5.0)


@in_pairs(
    num_columns=[1, 7],
    rows=[([0] * 4, False), ([8, 0, 0, 48], False), ([8, 0, 0, 48], True)],
    dtype=[torch.float32, torch.float16],
)
def test_a_sink_counts_once_in_a_row_that_is_whole_and_not_in_partial_results(
    num_columns: int, rows: tuple[list[int], bool], dtype: torch.dtype
):
    """rows: where they begin, and whether they are whole."""
    (begins, is_whole), case = rows, PagedRows(LENS, dtype=dtype, device=DEVICE)
    check(case, LENS, begins, num_columns, sinks=case.make_sinks(), is_whole=is_whole)


def test_rows_of_nothing_but_a_sink_are_zeros():
    case = PagedRows([5, 1, 5], device=DEVICE)
    check(case, [5, 0, 5], [0, 0, 0], 2, sinks=case.make_sinks())


@pytest.mark.parametrize("num_columns", [1, 7])
def test_rows_of_a_window_are_whole_wherever_they_begin(num_columns: int):
    check(PagedRows(LENS, device=DEVICE), LENS, [30, 7, 0, 80], num_columns, is_whole=True)


@pytest.mark.gpu
@pytest.mark.parametrize("windowed", [False, True], ids=["full", "windowed"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", LAYERS)
def test_the_layers_of_models_with_windows(name: str, dtype: torch.dtype, windowed: bool):
    layer, lens = LAYERS[name], [9000, 1, 64, 4097, 129, 30, 3000]
    case = PagedRows(lens, **layer.heads, page_size=16, dtype=dtype, device=DEVICE)
    sinks, config = case.make_sinks() if layer.has_sinks else None, decode_config(dtype, layer.head_dim)
    begins = [max(0, length - layer.window) if windowed else 0 for length in lens]
    check(case, lens, begins, 49, config, layer.softcap, sinks, is_whole=True)


@pytest.mark.gpu
@pytest.mark.parametrize("page_size", [1, 7, 16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("group", [1, 2, 4, 5, 8])
@pytest.mark.parametrize("head_dim", [64, 96, 128, 256])
def test_the_shapes_of_models(head_dim: int, group: int, dtype: torch.dtype, page_size: int):
    lens = [700, 1, 64, 65, 1500, 30]
    shape = {"group": group, "num_kv_heads": 8, "head_dim": head_dim, "page_size": page_size}
    check(PagedRows(lens, **shape, dtype=dtype, device=DEVICE), lens, [0] * 6, 49, decode_config(dtype, head_dim))
