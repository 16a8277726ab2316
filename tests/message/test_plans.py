"""Batches as messages for other ranks, and back."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from minisgl.core import Batch, PageTableUpdate, PrefixGroup, Req, SamplingParams
from minisgl.message.plans import PlanMsg, PlanReader, PlanWriter, order_codec
from minisgl.utils.arrays import NO_IDS

IDS = np.arange(1000, dtype=np.int32) * 7
PARAMS = SamplingParams(temperature=0.5, logit_bias={7: -1.5}, stop_token_ids=[3], max_tokens=50)
NO_CELLS = PageTableUpdate(NO_IDS, NO_IDS, NO_IDS)


def request(uid: int, table_idx: int, cached: int, upto: int, known: int, **changes: Any) -> Req:
    """A request of 10 prompt tokens that computes [cached, upto), of which `known` tokens are known."""
    fixed = {"max_device_len": 60, "prompt_len": 10, "sampling_params": PARAMS, "seed": 2**62 + uid}
    ids = IDS[uid : uid + known]
    more = {**fixed, "end_token_ids": frozenset({1, 5}), **changes}
    return Req(uid=uid, table_idx=table_idx, cached_len=cached, device_len=upto, input_ids=ids, **more)


def batch(*reqs: Req, step: int = 0, groups: tuple[PrefixGroup, ...] = ()) -> Batch:
    return Batch(reqs, NO_CELLS, step, groups)


class Wire:
    """A writer, a reader and bytes between them."""

    def __init__(self) -> None:
        self.writer, self.reader, self.codec = PlanWriter(), PlanReader(), order_codec()
        self.num_bytes = 0

    def send(self, batch: Batch) -> tuple[PlanMsg, Batch]:
        frame = self.codec.encode([self.writer.write(batch)])
        self.num_bytes = len(frame)
        (plan,) = self.codec.decode(frame)
        assert isinstance(plan, PlanMsg)
        return plan, self.reader.read(plan)


def check_equal(got: Batch, sent: Batch) -> None:
    assert (got.step, len(got.reqs)) == (sent.step, len(sent.reqs))
    for mine, other in zip(got.reqs, sent.reqs, strict=True):
        for name in Req.__struct_fields__:
            np.testing.assert_equal(getattr(mine, name), getattr(other, name), err_msg=name)
    for field in fields(PageTableUpdate):
        name = field.name
        np.testing.assert_array_equal(getattr(got.page_table_update, name), getattr(sent.page_table_update, name))
    for group, expected in zip(got.groups, sent.groups, strict=True):
        assert (group.begin, group.end) == (expected.begin, expected.end)
        np.testing.assert_array_equal(group.rows, expected.rows)


def test_a_request_arrives_whole_chunk_by_chunk_and_token_by_token() -> None:
    wire = Wire()
    cells = PageTableUpdate(*np.array([[2, 3], [0, 1], [9, 8]], np.int32))
    sent = Batch((request(5, 2, 0, 4, 10), request(6, 3, 8, 10, 10)), cells, 0)
    check_equal(wire.send(sent)[1], sent)
    sent = batch(request(6, 3, 10, 11, 10, prev_row=1), request(5, 2, 4, 10, 10), step=1)
    check_equal(wire.send(sent)[1], sent)
    sent = batch(request(5, 2, 10, 11, 11), request(6, 3, 11, 12, 11, prev_row=0), step=2)
    check_equal(wire.send(sent)[1], sent)


def test_what_was_told_is_not_told_again() -> None:
    wire = Wire()
    first, _ = wire.send(batch(request(5, 2, 0, 10, 10)))
    then, _ = wire.send(batch(request(5, 2, 10, 11, 11)))
    assert (len(first.newcomers), len(first.new_ids)) == (1, 10)
    assert (len(then.newcomers), then.new_ids.tolist()) == (0, [IDS[15]])


def test_a_decode_of_many_is_a_small_message() -> None:
    wire = Wire()
    reqs = [request(uid, uid, 10, 11, 10, prev_row=uid) for uid in range(256)]
    wire.send(batch(*reqs))
    wire.send(batch(*(request(uid, uid, 11, 12, 11, prev_row=uid) for uid in range(256))))
    assert wire.num_bytes < 256 * 26


def test_a_row_goes_to_another_request() -> None:
    wire = Wire()
    wire.send(batch(request(5, 2, 0, 10, 10)))
    sent = batch(request(9, 2, 0, 10, 10))
    check_equal(wire.send(sent)[1], sent)
    sent = batch(request(9, 2, 10, 11, 11))
    check_equal(wire.send(sent)[1], sent)


def test_a_request_that_was_retracted_may_come_back_to_its_row_with_more_known() -> None:
    wire = Wire()
    wire.send(batch(request(5, 2, 0, 10, 10)))
    wire.send(batch(request(5, 2, 10, 11, 11)))
    sent = batch(request(5, 2, 0, 13, 13, prefill_len=13))
    check_equal(wire.send(sent)[1], sent)


def test_ids_of_a_batch_that_was_read_stay_as_they_were() -> None:
    wire = Wire()
    _, first = wire.send(batch(request(5, 2, 0, 10, 10)))
    wire.send(batch(request(5, 2, 10, 11, 11)))
    assert first.reqs[0].input_ids.tolist() == IDS[5:15].tolist()


@pytest.mark.parametrize("again", [False, True])
def test_groups_that_stay_are_sent_once(again: bool) -> None:
    wire = Wire()
    reqs = [request(uid, uid, 10, 11, 11) for uid in range(3)]
    groups = (PrefixGroup(np.array([0, 2], np.int32), 0, 4),)
    wire.send(batch(*reqs, groups=groups))
    sent = batch(*reqs, groups=groups if again else ())
    plan, got = wire.send(sent)
    check_equal(got, sent)
    assert (plan.groups is None) == again
