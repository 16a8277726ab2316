"""The Triton backend's plans against attention by the book: the reference of its kernels on a CPU, they on a GPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.attention import AttentionCase, Row, Shape, assert_close
from support.windowed_layers import LAYERS

from minisgl.attention import AttnForm, triton_backend
from minisgl.engine.staging import HostStaging

BATCHES = {
    "one token in all": [Row(0, 1)],
    "one decode": [Row(70, 1)],
    "decodes of unlike lengths": [Row(n, 1) for n in (3, 200, 17, 64, 1, 130, 5)],
    "one prompt": [Row(0, 25)],
    "prompts of unlike lengths": [Row(0, 5), Row(0, 70), Row(0, 2), Row(0, 5)],
    "a chunk after many cached tokens": [Row(640, 9)],
    "chunks after cached tokens": [Row(640, 9), Row(3, 20), Row(64, 9)],
    "decodes, a chunk and new prompts": [Row(50, 1), Row(7, 1), Row(64, 30), Row(0, 30), Row(0, 1), Row(128, 2)],
    "decodes that share a prefix": [Row(n, 1, shared=256) for n in (256, 257, 300, 259)],
    "two prefixes and one row without": [
        *(Row(260 + i, 1, shared=256, prefix=0) for i in range(4)),
        Row(90, 1),
        *(Row(330, 1 + i, shared=320, prefix=1) for i in range(3)),
    ],
    "several levels": [Row(700 + n, 1, shared=shared) for n, shared in enumerate((64, 64, 640, 128, 640, 128, 320))],
    "six levels, of which four are read together": [Row(100, 1, shared=n) for n in (16, 32, 48, 64, 80, 96, 96)],
}

FORMS = {
    "windows": AttnForm(scale=0.25, windows=(21, 5)),
    "a window and none": AttnForm(scale=0.25, windows=(64, 0)),
    "a window of one": AttnForm(scale=0.25, windows=(1, 0)),
    "windows and a cap": AttnForm(scale=3.0, softcap=5.0, windows=(21, 0)),
    "another scale": AttnForm(scale=0.4, windows=(0, 0)),
}


@pytest.fixture
def eager_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decodes share even short prefixes."""
    monkeypatch.setattr(triton_backend, "SHARED_US", 0.0)
    monkeypatch.setattr(triton_backend, "GROUP_US", 0.0)
    monkeypatch.setattr(triton_backend, "TILE_US_PER_TOKEN", 0.0)


@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("name", BATCHES)
def test_every_kind_of_batch_is_as_by_the_book(name: str, page_size: int):
    case = AttentionCase(BATCHES[name], Shape(page_size), scattered=True)
    assert_close(case.run(name="triton"), case.expected(), torch.float32)


@pytest.mark.usefixtures("eager_groups")
@pytest.mark.parametrize("group", [1, 3, 8])
@pytest.mark.parametrize("name", BATCHES)
def test_every_kind_of_batch_is_as_by_the_book_in_groups(name: str, group: int):
    case = AttentionCase(BATCHES[name], Shape(group=group), scattered=True)
    assert_close(case.run(name="triton"), case.expected(), torch.float32)


@pytest.mark.usefixtures("eager_groups")
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("name", BATCHES)
def test_every_kind_of_layer_is_as_by_the_book(name: str, form: AttnForm):
    case = AttentionCase(BATCHES[name], Shape(), scattered=True, form=form, has_sinks=True)
    for layer_id in range(2):
        assert_close(case.run(layer_id, name="triton"), case.expected(layer_id), torch.float32)


@pytest.mark.usefixtures("eager_groups")
def test_rows_share_a_prefix_in_layers_without_a_window_alone():
    case = AttentionCase([Row(40, 1, shared=32)] * 3, Shape(), form=FORMS["windows and a cap"])
    works = case.backend("triton").plan(case.batch(), HostStaging()).works
    assert [(work.window, work.shared is None) for work in works] == [(0, False), (21, True)]


@pytest.mark.parametrize(("length", "num_plans"), [(21, 1), (22, 2)])
def test_texts_that_fit_the_window_are_planned_once_for_all_layers(length: int, num_plans: int):
    case = AttentionCase([Row(3, 1), Row(length - 4, 4)], Shape(), form=FORMS["windows and a cap"])
    works = case.backend("triton").plan(case.batch(), HostStaging()).works
    assert len({id(work) for work in works}) == num_plans


@pytest.mark.usefixtures("eager_groups")
def test_a_window_that_no_row_can_outgrow_is_none_even_in_a_graph():
    case = AttentionCase([Row(40, 1, shared=32)] * 3, Shape(), form=AttnForm(scale=0.25, windows=(4096, 0)))
    (work,) = case.backend("triton").plan(case.batch(), PaddingStaging(), padded=3).works
    assert work.window == 0
    assert work.shared is not None


@pytest.mark.usefixtures("eager_groups")
def test_decodes_that_share_are_another_graph_than_those_that_do_not():
    sharing, alone = (AttentionCase([Row(40, 1, shared=shared)] * 3, Shape()) for shared in (32, 0))
    variants = [case.backend("triton").plan(case.batch(), HostStaging()).variant for case in (sharing, alone)]
    assert variants == [True, False]


@pytest.mark.usefixtures("eager_groups")
def test_nothing_is_shared_where_that_is_turned_off():
    case = AttentionCase([Row(40, 1, shared=32)] * 3, Shape())
    config = replace(case.config(), shared_prefix=False)
    (work,) = triton_backend.TritonAttnBackend(config).plan(case.batch(), HostStaging()).works
    assert work.shared is None


@pytest.mark.parametrize(
    ("num_rows", "shared", "spared_us"),
    [(256, 8192, 1060), (32, 2000, 30), (8, 8192, 26), (8, 500, None), (2, 8192, None)],
)
def test_what_reading_together_spares_is_as_measured(num_rows: int, shared: int, spared_us: float | None):
    config = AttentionCase([Row(1, 1)], Shape(num_kv_heads=8, group=4, head_dim=128, dtype=torch.bfloat16)).config()
    sample = config.kv_pool.k_cache(0)
    cost = triton_backend._group_cost(config, sample, triton_backend._work_shape(config, sample))
    spared = cost.saved(num_rows, shared) - cost.batch
    if spared_us is None:
        assert spared < 0
    else:
        assert spared * 2 * 8 * 128 * 2 / triton_backend.SHARED_BYTES_PER_US == pytest.approx(spared_us, rel=0.25)


class PaddingStaging(HostStaging):
    """Garbage beyond the values, as a device has it; remembers the capacities."""

    def __init__(self) -> None:
        self.capacities: list[int | None] = []

    def add(self, values: np.ndarray, capacity: int | None = None, fill: float = 0) -> torch.Tensor:
        self.capacities.append(capacity)
        assert capacity is not None
        assert len(values) <= capacity
        return torch.from_numpy(np.pad(values, (0, capacity - len(values)), constant_values=123456))


@pytest.mark.usefixtures("eager_groups")
@pytest.mark.parametrize("window", [0, 20, 72, 83])
@pytest.mark.parametrize("shared", [0, 64])
def test_a_padded_batch_is_as_by_the_book_and_its_other_rows_are_zeros(shared: int, window: int):
    rows, form = [Row(64 + 9 * n, 1, shared=shared) for n in range(3)], AttnForm(scale=0.3, windows=(window, 0))
    case = AttentionCase(rows, Shape(), scattered=True, form=form, has_sinks=True)
    backend = triton_backend.TritonAttnBackend(replace(case.config(), max_running_req=5))
    meta = backend.plan(case.batch(), PaddingStaging(), padded=5)
    q = torch.cat([case.q, torch.full_like(case.q[:2], float("nan"))])
    for layer_id in range(2):
        case.store_new(layer_id)
        out = backend.forward(q, case.k, case.v, layer_id, meta, case.sinks)
        assert_close(out[:3], case.expected(layer_id), torch.float32)
        assert not out[3:].any()


@pytest.mark.usefixtures("eager_groups")
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_where_a_padded_plan_lies_depends_on_the_padded_size_alone(form: AttnForm):
    """And not on whether any row is longer than a window."""
    seen = set()
    for rows in (
        [Row(500, 1, shared=64)] * 6,
        [Row(65 + n, 1, shared=32 + n % 2 * 32) for n in range(5)],
        [Row(17, 1, shared=16)] * 2,
    ):
        case, staging = AttentionCase(rows, Shape(), form=form), PaddingStaging()
        table = np.pad(case.table, ((0, 0), (0, 200)))  # as of an engine, where rows may become long
        config = replace(case.config(), page_table=torch.from_numpy(table), host_table=table)
        meta = triton_backend.TritonAttnBackend(config).plan(case.batch(), staging, padded=6)
        assert meta.variant == (0 in form.windows)
        assert [work.window for work in meta.works] == sorted(set(form.windows))
        seen.add(tuple(staging.capacities))
    assert len(seen) == 1


@st.composite
def batches(draw) -> AttentionCase:
    """Decodes, then prompts; prefixes are whole pages, as the prefix cache gives them. Layer 0 may have a window."""
    page_size = draw(st.sampled_from([1, 4, 16]))
    rows = []
    for _ in range(draw(st.integers(1, 9))):
        shared = draw(st.sampled_from([0, 16, 112, 240]))
        cached = shared + draw(st.sampled_from([0, 1, 15, 70]))
        rows.append(Row(cached, draw(st.sampled_from([1, 1, 2, 9, 40])), shared, prefix=draw(st.integers(0, 1))))
    shape = Shape(page_size, draw(st.integers(1, 3)), draw(st.integers(1, 4)), head_dim=8)
    form = AttnForm(scale=0.4, windows=(draw(st.sampled_from([0, 0, 1, 9, 40, 200])), 0))
    rows = sorted(rows, key=lambda row: row.extend > 1)
    return AttentionCase(rows, shape, draw(st.booleans()), form=form, has_sinks=draw(st.booleans()))


@pytest.mark.usefixtures("eager_groups")
@settings(max_examples=50, deadline=None, derandomize=True)
@given(batches())
def test_random_batches_are_as_by_the_book(case: AttentionCase):
    assert_close(case.run(name="triton"), case.expected(), torch.float32)


def rows_of(min_extend: int, max_extend: int) -> st.SearchStrategy[list[Row]]:
    """Behind prefixes of one tree of six levels."""
    row = st.builds(
        lambda shared, own, extend: Row(shared + own, extend, shared=shared),
        st.sampled_from([0, 4, 8, 16, 20, 24, 60]),
        st.integers(0, 40),
        st.integers(min_extend, max_extend),
    )
    return st.lists(row, min_size=1, max_size=40)


@pytest.mark.usefixtures("eager_groups")
@settings(max_examples=50, deadline=None, derandomize=True)
@given(rows_of(1, 1), st.integers(0, 9))
def test_every_padded_batch_fits_what_is_set_aside_for_its_size(rows: list[Row], num_padding: int):
    form, size = AttnForm(scale=1.0, windows=(0, 30)), len(rows) + num_padding
    case = AttentionCase(rows, Shape(head_dim=8), form=form)
    backend = triton_backend.TritonAttnBackend(replace(case.config(), max_running_req=size))
    for work in backend.plan(case.batch(), PaddingStaging(), padded=size).works:
        assert int(work.own.columns[-1]) <= len(backend._partials.lse)
        if work.shared is not None:
            num_parts = int(work.shared.part_begins[size])
            assert int(work.shared.parts[:num_parts].max()) < len(backend._partials.lse)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(rows_of(2, 50))
def test_prompts_of_any_number_and_length_fit_the_partial_results(rows: list[Row]):
    case = AttentionCase(rows, Shape(head_dim=8, group=1), form=AttnForm(scale=1.0, windows=(0, 30)))
    backend = triton_backend.TritonAttnBackend(replace(case.config(), max_running_req=1))
    for work in backend.plan(case.batch(), HostStaging()).works:
        if work.extends.parts is not None and len(work.extends.parts):
            assert int(work.extends.parts.max()) < len(backend._partials.lse)


@pytest.mark.gpu
@pytest.mark.usefixtures("eager_groups")
@pytest.mark.parametrize("page_size", [1, 7, 16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", BATCHES)
def test_every_kind_of_batch_on_a_gpu(name: str, dtype: torch.dtype, page_size: int):
    shared = [Row(row.cached, row.extend, row.shared // page_size * page_size, row.prefix) for row in BATCHES[name]]
    shape = Shape(page_size, num_kv_heads=2, group=4, head_dim=128, dtype=dtype, device="cuda")
    case = AttentionCase(shared, shape, scattered=True)
    assert_close(case.run(name="triton"), case.expected(), dtype)


@pytest.mark.gpu
@pytest.mark.usefixtures("eager_groups")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("batch", ["decodes, a chunk and new prompts", "several levels", "long rows"])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_models_with_windows_on_a_gpu(name: str, batch: str, dtype: torch.dtype):
    layer = LAYERS[name]
    rows = [Row(9000, 1), Row(4095, 1), Row(6000, 300), Row(0, 400)] if batch == "long rows" else BATCHES[batch]
    form = AttnForm(scale=layer.head_dim**-0.5, softcap=layer.softcap, windows=(layer.window, 0))
    shape = Shape(16, **layer.heads, dtype=dtype, device="cuda")
    case = AttentionCase(rows, shape, scattered=True, form=form, has_sinks=layer.has_sinks)
    for layer_id in range(2):
        assert_close(case.run(layer_id, name="triton"), case.expected(layer_id), dtype)
