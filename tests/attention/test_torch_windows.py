"""Windows, soft-caps, scales and sinks of the torch backend: what is read for them, and the results by the book."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.attention import AttentionCase, Row, Shape, assert_close
from support.attention_batches import WINDOW, windowed
from support.attention_batches import WINDOWED as BATCHES

from minisgl.attention import AttnForm, plan
from minisgl.attention.parts import LayerParts
from minisgl.attention.shared_prefix import GroupCost
from minisgl.engine.staging import HostStaging


def parts_of(case: AttentionCase) -> tuple[LayerParts, LayerParts]:
    """Of the layer with a window, and of the one without."""
    with_window, without = case.backend().plan(case.batch(), HostStaging())
    return with_window, without


@pytest.fixture
def eager_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even short prefixes are shared."""
    monkeypatch.setattr(plan, "GATHERED", GroupCost(rows=1, tokens=1))


@pytest.mark.usefixtures("eager_groups")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("name", BATCHES)
def test_every_kind_of_batch_is_as_by_the_book(name: str, page_size: int, dtype: torch.dtype):
    case = windowed(BATCHES[name], Shape(page_size, dtype=dtype), scattered=True)
    for layer_id in range(2):
        assert_close(case.run(layer_id), case.expected(layer_id), dtype)


@pytest.mark.parametrize("window", [1, 2, 255, 256, 257, 300, 700])
@pytest.mark.parametrize("cached", [0, 100, 600])
def test_a_prompt_of_several_bands_is_as_by_the_book(cached: int, window: int):
    case = windowed([Row(cached, 600), Row(0, 3)], Shape(group=1), window)
    assert_close(case.run(), case.expected(), torch.float32)


def test_a_decode_reads_its_window_and_nothing_else():
    case = windowed([Row(70, 1), Row(5, 1)], Shape(page_size=4), scattered=True)
    with_window, without = parts_of(case)
    slots = [part.slots.tolist() for part in with_window.decodes]
    assert slots == [[*case.slots(0, 51, 71), *case.slots(1, 0, 6), *[case.slots(1, 5, 6)] * 14]]
    assert sum(len(part.slots) for part in without.decodes) == 2 * 71


def test_a_decode_in_a_run_of_slots_reads_a_slice_of_it():
    with_window, _ = parts_of(windowed([Row(70, 1)], Shape(page_size=4)))
    assert [part.slots for part in with_window.decodes] == [slice(4 + 51, 4 + 71)]


def test_a_chunk_reads_from_where_the_window_of_its_first_token_begins():
    (band,) = parts_of(windowed([Row(300, 9)], Shape(page_size=1)))[0].bands
    assert band.tokens == slice(0, 9)
    assert band.slots == slice(1 + 281, 1 + 309)
    is_seen = band.mask[0, 0] == 0
    assert is_seen.sum(-1).tolist() == [20] * 9
    assert [row.nonzero()[0].item() for row in is_seen] == list(range(9))


def test_bands_of_a_long_prompt_read_no_more_than_they_see():
    bands = parts_of(windowed([Row(0, 700)], Shape(page_size=1)))[0].bands
    assert [(band.tokens.start, band.tokens.stop) for band in bands] == [(0, 256), (256, 512), (512, 700)]
    assert [(band.slots.start - 1, band.slots.stop - 1) for band in bands] == [(0, 256), (237, 512), (493, 700)]


def test_texts_within_the_window_are_read_as_if_there_were_none():
    with_window, without = parts_of(windowed([Row(19, 1), Row(0, 20), Row(7, 2)], Shape()))
    assert with_window is without


def test_short_rows_beside_a_long_one_are_read_as_if_there_were_no_window():
    rows = [Row(16, 2, shared=16), Row(16, 3, shared=16), Row(0, 9), Row(0, 40)]
    with_window, _ = parts_of(windowed(rows, Shape()))
    assert len(with_window.bands) == 1
    assert len(with_window.extends) == 3
    assert len(with_window.prefixes) == 2


@pytest.mark.usefixtures("eager_groups")
def test_a_shared_prefix_is_read_once_by_layers_without_a_window_only():
    with_window, without = parts_of(windowed([Row(260, 1, shared=256)] * 3, Shape()))
    assert len(without.prefixes) == 1
    assert with_window.prefixes == ()
    assert sum(len(part.slots) for part in with_window.decodes) == 3 * 20


def test_layers_with_equal_windows_share_a_plan():
    form = AttnForm(scale=0.25, windows=(8, 0, 8, 4, 0, 100))
    parts = (
        AttentionCase([Row(70, 1)], Shape(), form=form)
        .backend()
        .plan(AttentionCase([Row(70, 1)], Shape()).batch(), HostStaging())
    )
    assert parts[0] is parts[2]
    assert parts[1] is parts[4] is parts[5]
    assert len({id(of_layer) for of_layer in parts}) == 3


@st.composite
def cases(draw) -> AttentionCase:
    """Any mix of rows and of what a model may want of attention."""
    page_size = draw(st.sampled_from([1, 4, 16]))
    rows = []
    for _ in range(draw(st.integers(1, 7))):
        shared = draw(st.sampled_from([0, 16, 48, 240]))
        cached = shared + draw(st.sampled_from([0, 1, 15, 70]))
        rows.append(Row(cached, draw(st.sampled_from([1, 1, 2, 9, 40, 300])), shared, prefix=draw(st.integers(0, 1))))
    form = AttnForm(
        scale=draw(st.sampled_from([0.1, 0.35, 1.0])),
        softcap=draw(st.sampled_from([0.0, 0.0, 1.5, 50.0])),
        windows=(draw(st.sampled_from([0, 1, 2, 16, 31, 64, 250, 1000])), 0),
    )
    shape = Shape(page_size, draw(st.integers(1, 3)), draw(st.integers(1, 4)), head_dim=8)
    return AttentionCase(rows, shape, draw(st.booleans()), draw(st.integers(0, 99)), form, draw(st.booleans()))


@pytest.mark.usefixtures("eager_groups")
@settings(max_examples=50, deadline=None, derandomize=True)
@given(cases())
def test_random_cases_are_as_by_the_book(case: AttentionCase):
    assert_close(case.run(), case.expected(), torch.float32)


@pytest.mark.parametrize("softcap", [0.0, 2.0])
@pytest.mark.parametrize("name", BATCHES)
def test_bfloat16_with_sinks_is_as_by_the_book(name: str, softcap: float):
    form = AttnForm(scale=0.3, softcap=softcap, windows=(WINDOW, 0))
    case = AttentionCase(BATCHES[name], Shape(dtype=torch.bfloat16), scattered=True, form=form, has_sinks=True)
    assert_close(case.run(), case.expected(), torch.bfloat16)


def test_sinks_of_the_model_s_dtype_are_taken_too():
    case = AttentionCase([Row(5, 1), Row(0, 7)], Shape(dtype=torch.bfloat16), has_sinks=True)
    case.sinks = case.sinks.bfloat16()
    assert_close(case.run(), case.expected(), torch.bfloat16)


@pytest.mark.gpu
@pytest.mark.parametrize("softcap", [0.0, 2.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", BATCHES)
def test_every_kind_of_batch_with_sinks_on_a_gpu(name: str, dtype: torch.dtype, softcap: float):
    form = AttnForm(scale=0.3, softcap=softcap, windows=(WINDOW, 0))
    shape = Shape(dtype=dtype, device="cuda")
    case = AttentionCase(BATCHES[name], shape, scattered=True, form=form, has_sinks=True)
    assert_close(case.run(), case.expected(), dtype)
