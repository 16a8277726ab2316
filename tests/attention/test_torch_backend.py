"""The torch backend against attention by the book, for every kind of batch."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.attention import AttentionCase, Row, Shape, assert_close
from support.attention_batches import BATCHES, MIXED

from minisgl.attention import create_attention_backend, plan
from minisgl.attention.shared_prefix import GroupCost
from minisgl.engine.staging import HostStaging


@pytest.mark.parametrize("scattered", [False, True], ids=["in order", "scattered"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", BATCHES)
def test_every_kind_of_batch_is_as_by_the_book(name: str, dtype: torch.dtype, scattered: bool):
    case = AttentionCase(BATCHES[name], Shape(dtype=dtype), scattered)
    assert_close(case.run(), case.expected(), dtype)


@pytest.mark.parametrize("group", [1, 3, 4, 8])
@pytest.mark.parametrize("head_dim", [16, 24, 64, 128])
def test_every_shape_of_heads(group: int, head_dim: int):
    case = AttentionCase(MIXED, Shape(group=group, head_dim=head_dim), scattered=True)
    assert_close(case.run(), case.expected(), torch.float32)


@pytest.mark.parametrize("scattered", [False, True], ids=["in order", "scattered"])
@pytest.mark.parametrize("page_size", [1, 4, 16, 64])
def test_every_page_size(page_size: int, scattered: bool):
    case = AttentionCase(MIXED, Shape(page_size), scattered)
    assert_close(case.run(), case.expected(), torch.float32)


@pytest.mark.parametrize("head_dim", [16, 24, 64, 128])
def test_every_head_dim_in_bfloat16(head_dim: int):
    case = AttentionCase(MIXED, Shape(head_dim=head_dim, dtype=torch.bfloat16))
    assert_close(case.run(), case.expected(), torch.bfloat16)


@pytest.fixture
def eager_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even short prefixes are shared."""
    monkeypatch.setattr(plan, "GATHERED", GroupCost(rows=1, tokens=1))


@pytest.mark.usefixtures("eager_groups")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", BATCHES)
def test_every_kind_of_batch_is_as_by_the_book_in_groups(name: str, dtype: torch.dtype):
    case = AttentionCase(BATCHES[name], Shape(dtype=dtype), scattered=True)
    assert_close(case.run(), case.expected(), dtype)


@pytest.mark.usefixtures("eager_groups")
def test_several_levels_of_prefixes_are_as_by_the_book():
    rows = [Row(700 + n, 1 + n // 5, shared=shared) for n, shared in enumerate((64, 64, 640, 128, 640, 128, 320, 320))]
    case = AttentionCase(rows, Shape(), scattered=True)
    assert len(case.backend().plan(case.batch(), HostStaging())[0].prefixes) > 2
    assert_close(case.run(), case.expected(), torch.float32)


def test_nothing_is_read_together_where_that_is_turned_off():
    case = AttentionCase([Row(1000, 1, shared=1000)] * 20, Shape())
    config = replace(case.config(), shared_prefix=False)
    assert create_attention_backend("torch", config).plan(case.batch(), HostStaging())[0].prefixes == ()


def test_long_rows_of_wide_heads_are_read_in_place():
    shape = Shape(page_size=16, num_kv_heads=8, group=1, head_dim=128)
    case = AttentionCase([Row(150, 1), Row(20, 1), Row(200, 1), Row(30, 1)], shape)
    parts = case.backend().plan(case.batch(), HostStaging())[0]
    assert sum(isinstance(part.slots, slice) for part in parts.decodes) == 2
    assert_close(case.run(), case.expected(), torch.float32)


def test_a_single_stream_in_order_copies_nothing():
    case = AttentionCase([Row(70, 1)], Shape())
    parts = case.backend().plan(case.batch(), HostStaging())[0]
    assert parts.num_gathered == 0
    assert parts.decodes[0].mask is None


@pytest.mark.usefixtures("eager_groups")
def test_a_shared_prefix_is_read_once():
    rows = [Row(260, 1, shared=256)] * 8
    case = AttentionCase(rows, Shape())
    parts = case.backend().plan(case.batch(), HostStaging())[0]
    assert [part.slots for part in parts.prefixes] == [slice(4, 260)]
    assert sum(len(part.slots) for part in parts.decodes) == 8 * 5


def test_new_keys_and_values_are_stored_in_their_layer_only():
    case = AttentionCase([Row(6, 3), Row(9, 1)], Shape(), scattered=True)
    case.run(layer_id=1)
    slots = torch.cat([case.slots(0, 6, 9), case.slots(1, 9, 10)])
    assert torch.equal(case.pool.k_cache(1)[slots], case.k)
    assert torch.equal(case.pool.v_cache(1)[slots], case.v)
    assert case.pool.k_cache(0)[slots].isnan().all()


def test_results_do_not_depend_on_batch_mates():
    rows = [Row(300, 1, shared=256), Row(60, 1), Row(256, 5, shared=256), Row(0, 9)]
    together = AttentionCase([*rows, *[Row(280, 1, shared=256)] * 5], Shape()).run()
    case = AttentionCase([*rows, *[Row(280, 1, shared=256)] * 5], Shape())
    first = 0
    for uid, row in enumerate(rows):
        tokens = slice(first, first + row.extend)
        assert_close(together[tokens], _alone(case, uid, tokens).double(), torch.float32)
        first += row.extend


def _alone(case: AttentionCase, uid: int, tokens: slice) -> torch.Tensor:
    backend, batch = case.backend(), case.batch()
    alone = type(batch)(reqs=(batch.reqs[uid],), page_table_update=batch.page_table_update, step=0)
    meta = backend.plan(alone, HostStaging())
    case.store_new(layer_id=0)
    return backend.forward(case.q[tokens], case.k[tokens], case.v[tokens], 0, meta)


def test_the_page_table_is_read_anew_by_every_plan():
    case = AttentionCase([Row(6, 1)], Shape())
    backend = case.backend()
    before = last_slot(backend, case)
    case.table[0, 1] += 1
    assert last_slot(backend, case) == before + case.shape.page_size


def last_slot(backend, case: AttentionCase) -> int:
    """Where the only row's last token is read from."""
    parts = backend.plan(case.batch(), HostStaging())[0]
    (part,) = parts.decodes
    return part.slots.stop - 1 if isinstance(part.slots, slice) else int(part.slots[-1])


@st.composite
def batches(draw) -> AttentionCase:
    """Any mix of rows; prefixes are whole pages, as the prefix cache gives them."""
    page_size = draw(st.sampled_from([1, 4, 16]))
    rows = []
    for _ in range(draw(st.integers(1, 9))):
        shared = draw(st.sampled_from([0, 16, 240, 640]))
        cached = shared + draw(st.sampled_from([0, 1, 15, 70]))
        rows.append(Row(cached, draw(st.sampled_from([1, 1, 2, 9, 40])), shared, prefix=draw(st.integers(0, 1))))
    shape = Shape(page_size, draw(st.integers(1, 3)), draw(st.integers(1, 4)), head_dim=8)
    return AttentionCase(rows, shape, scattered=draw(st.booleans()), seed=draw(st.integers(0, 99)))


@settings(max_examples=50, deadline=None, derandomize=True)
@given(batches())
def test_random_batches_are_as_by_the_book(case: AttentionCase):
    assert_close(case.run(), case.expected(), torch.float32)


def test_heads_that_do_not_divide_are_a_value_error():
    config = AttentionCase([Row(6, 1)], Shape()).config()
    with pytest.raises(ValueError, match="num_kv_heads=2 does not divide num_qo_heads=3"):
        replace(config, num_qo_heads=3)


def test_an_unknown_backend_is_a_value_error_that_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"'tape'.*torch"):
        create_attention_backend("tape", AttentionCase([Row(6, 1)], Shape()).config())


@pytest.mark.gpu
@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_every_kind_of_batch_on_a_gpu(name: str, dtype: torch.dtype):
    """In bfloat16 torch's kernels round weights, too, in each of the parts that are joined."""
    case = AttentionCase(BATCHES[name], Shape(dtype=dtype, device="cuda"), scattered=True)
    expected = case.expected()
    if dtype == torch.float32:
        assert_close(case.run(), expected, dtype)
    else:
        assert (case.run().double() - expected).abs().max() <= 2e-2 * expected.abs().max()
