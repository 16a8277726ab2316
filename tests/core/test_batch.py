"""What a batch says of its rows."""

from __future__ import annotations

import numpy as np
import pytest

from minisgl.core import Batch, PageTableUpdate, Req, SamplingParams
from minisgl.utils.arrays import NO_IDS

NO_UPDATE = PageTableUpdate(NO_IDS, NO_IDS, NO_IDS)


def make_req(cached_len: int, device_len: int, num_ids: int | None = None, prev_row: int = -1) -> Req:
    ids = np.zeros(device_len if num_ids is None else num_ids, np.int32)
    return Req(7, 3, cached_len, device_len, 20, 5, ids, SamplingParams(), prev_row=prev_row)


def test_columns_are_those_of_the_rows():
    batch = Batch((make_req(8, 9), make_req(9, 10, 9, prev_row=4), make_req(0, 5)), NO_UPDATE, step=0)
    assert batch.cached_lens.tolist() == [8, 9, 0]
    assert batch.device_lens.tolist() == [9, 10, 5]
    assert batch.extend_lens.tolist() == [1, 1, 5]
    assert batch.table_idxs.tolist() == [3, 3, 3]
    assert batch.prev_rows.tolist() == [-1, 4, -1]
    assert (batch.num_decodes, batch.num_tokens) == (2, 7)
    batch.check_integrity()


def test_a_row_whose_prefill_len_is_not_given_has_a_prompt_to_compute():
    assert make_req(0, 5).is_prefill
    assert make_req(0, 5).samples
    assert not make_req(0, 4).samples
    assert not make_req(5, 6).is_prefill


@pytest.mark.parametrize(
    ("req", "words"),
    [
        (make_req(9, 9), "uid=7: cached_len=9 device_len=9"),
        (make_req(20, 21), "device_len=21 max=20"),
        (make_req(8, 9, num_ids=8), "uid=7: 8 of 9 ids"),
        (make_req(8, 9, num_ids=7, prev_row=0), "uid=7: 7 of 9 ids"),
    ],
)
def test_a_part_that_no_request_has_is_named(req: Req, words: str):
    with pytest.raises(AssertionError, match=words):
        Batch((req,), NO_UPDATE, step=0).check_integrity()
