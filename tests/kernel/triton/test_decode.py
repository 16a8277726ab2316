"""Decodes by the Triton kernel against the reference, whichever way they are cut."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.interpreted import allow_loaded_bounds
from support.paged_work import PagedRows, assert_joins_as

from minisgl.attention.decode_plan import plan_own
from minisgl.kernel import torch_attention
from minisgl.kernel.attention_work import ITEM_FIELDS, DecodeConfig, decode_config
from minisgl.kernel.triton import decode

allow_loaded_bounds()
SMALL = DecodeConfig(block=16, num_warps=4, stages=2, programs_per_sm=1)
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
LENS = [40, 17, 1, 90]


def check(case: PagedRows, lens: list[int], begins: list[int], num_columns: int, config: DecodeConfig = SMALL) -> None:
    work = plan_own(case.table_idxs, np.array(begins), np.array(lens), num_columns, config.block)
    items, columns = map(case.send, work)
    assert_joins_as(
        case,
        len(work.items) // ITEM_FIELDS,
        lambda out, partials: decode.paged_decode(case.q, *case.cache, items, columns, out, partials, config),
        lambda out, partials: torch_attention.paged_decode(case.q, *case.cache, items, columns, out, partials),
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


@pytest.mark.gpu
@pytest.mark.parametrize("page_size", [1, 7, 16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("group", [1, 2, 4, 5, 8])
@pytest.mark.parametrize("head_dim", [64, 96, 128, 256])
def test_the_shapes_of_models(head_dim: int, group: int, dtype: torch.dtype, page_size: int):
    lens = [700, 1, 64, 65, 1500, 30]
    shape = {"group": group, "num_kv_heads": 8, "head_dim": head_dim, "page_size": page_size}
    check(PagedRows(lens, **shape, dtype=dtype, device=DEVICE), lens, [0] * 6, 49, decode_config(dtype, head_dim))
