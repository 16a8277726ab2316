"""The FlashInfer backend against attention by the book: with a stand-in for the package, on a GPU with the real one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from support import fake_flashinfer
from support.attention import AttentionCase, Row, Shape, assert_close

from minisgl.attention import AttnForm, flashinfer_backend, flashinfer_calls
from minisgl.attention.flashinfer_backend import FlashInferAttnBackend
from minisgl.attention.flashinfer_plan import cut_ranges, merge_parts, prefers_fa3
from minisgl.attention.shared_prefix import GroupCost, SharedRange
from minisgl.core import PrefixGroup
from minisgl.engine.staging import make_staging

BATCHES = {
    "one decode": [Row(70, 1)],
    "decodes of unlike lengths": [Row(n, 1) for n in (3, 200, 15, 16, 1, 130, 5)],
    "one prompt": [Row(0, 33)],
    "prompts of unlike lengths": [Row(0, 5), Row(0, 70), Row(0, 2)],
    "decodes, a chunk and new prompts": [Row(50, 1), Row(7, 1), Row(64, 30), Row(0, 30), Row(128, 2)],
    "prompts of which one is a single token": [Row(9, 1), Row(0, 1), Row(0, 30), Row(0, 1)],
}
TREE = [
    *(Row(n, 1, shared=64) for n in (64, 81, 100, 97, 70)),
    Row(150, 1, shared=144, prefix=1),
    Row(64, 9, shared=64),
]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in, on a CPU that passes for a Hopper GPU of 4 multiprocessors."""
    package = fake_flashinfer.fake_flashinfer()
    for module in (flashinfer_backend, flashinfer_calls):
        monkeypatch.setattr(module, "library", lambda: package)
    monkeypatch.setattr(flashinfer_backend, "capability", lambda _: (9, 0))
    monkeypatch.setattr(flashinfer_backend, "num_sms", lambda _: 4)
    monkeypatch.setattr(flashinfer_calls, "MIN_FLOAT_WORKSPACE", 16)


def shape(page_size: int = 4, group: int = 3, head_dim: int = 64, device: str = "cpu") -> Shape:
    return Shape(page_size=page_size, group=group, head_dim=head_dim, dtype=torch.bfloat16, device=device)


def tree_groups() -> tuple[PrefixGroup, ...]:
    """Of the rows of TREE: all share 48 tokens and three share 16 more; the last of the first is a prompt."""
    rows = (np.array([0, 1, 2, 3, 4, 6], np.int32), np.array([1, 2, 3], np.int32))
    return PrefixGroup(rows[0], 0, 48), PrefixGroup(rows[1], 48, 64)


def run(case: AttentionCase, groups: Sequence[PrefixGroup] = (), layers: Sequence[int] = (0,)) -> torch.Tensor:
    """[T, Hq * D] of the last of those layers."""
    device = torch.device(case.shape.device)
    backend, staging = FlashInferAttnBackend(case.config()), make_staging(device)
    if device.type == "cuda":
        staging.begin()
    meta = backend.plan(replace(case.batch(), groups=tuple(groups)), staging)
    if device.type == "cuda":
        staging.send()
    for layer_id in layers:
        case.store_new(layer_id)
        out = backend.forward(case.q, case.k, case.v, layer_id, meta, case.sinks)
    return out


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("name", BATCHES)
def test_every_kind_of_batch_is_as_by_the_book(name: str, page_size: int):
    case = AttentionCase(BATCHES[name], shape(page_size), scattered=True)
    assert_close(run(case), case.expected(), torch.bfloat16)


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("group", [1, 4, 5, 8])
def test_groups_of_every_size_have_a_kernel(group: int):
    case = AttentionCase(BATCHES["decodes, a chunk and new prompts"], shape(group=group), scattered=True)
    assert_close(run(case), case.expected(), torch.bfloat16)


@pytest.mark.usefixtures("fake")
def test_later_plans_read_lengths_where_the_step_has_sent_them():
    case = AttentionCase(BATCHES["decodes of unlike lengths"], shape(page_size=16), scattered=True)
    backend, staging = FlashInferAttnBackend(case.config()), make_staging(torch.device("cpu"))
    case.store_new(0)
    for _ in range(2):
        meta = backend.plan(case.batch(), staging)
        assert_close(backend.forward(case.q, case.k, case.v, 0, meta), case.expected(), torch.bfloat16)


@pytest.mark.usefixtures("fake")
def test_a_second_layer_reads_the_pages_that_the_first_listed():
    case = AttentionCase(BATCHES["decodes, a chunk and new prompts"], shape(), scattered=True)
    assert_close(run(case, layers=[0, 1]), case.expected(), torch.bfloat16)


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("backend", ["fa2", "fa3"])
@pytest.mark.parametrize("page_size", [1, 16])
def test_shared_prefixes_are_read_once(page_size: int, backend: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(flashinfer_backend, "prefers_fa3", lambda *_: backend == "fa3")
    monkeypatch.setattr(flashinfer_backend, "COST", GroupCost(rows=1, tokens=0))
    case = AttentionCase(TREE, shape(page_size), scattered=True)
    assert_close(run(case, tree_groups(), layers=[0, 1]), case.expected(), torch.bfloat16)
    assert fake_flashinfer.created == ["fa2", backend]  # a short prompt, the prefixes


@pytest.mark.usefixtures("fake")
def test_prefixes_that_do_not_pay_are_left_to_the_rows():
    case = AttentionCase(TREE[:-1], shape(), scattered=True)
    groups = (PrefixGroup(np.array([0, 1, 2, 3, 4], np.int32), 0, 64),)
    assert_close(run(case, groups), case.expected(), torch.bfloat16)
    assert fake_flashinfer.created == []


@pytest.mark.usefixtures("fake")
def test_long_prompts_take_fa3_on_hopper_alone(monkeypatch: pytest.MonkeyPatch):
    case = AttentionCase([Row(0, 130), Row(0, 140)], shape())
    assert_close(run(case), case.expected(), torch.bfloat16)
    monkeypatch.setattr(flashinfer_backend, "capability", lambda _: (8, 0))
    run(case)
    assert fake_flashinfer.created == ["fa3", "fa2"]


class FixedStaging:
    """Gives the n-th values of every step the same address, as a captured graph wants it."""

    def __init__(self) -> None:
        self._buffers: list[torch.Tensor] = []
        self.begin()

    def begin(self) -> None:
        self._turn = -1

    def add(self, values: np.ndarray, capacity: int | None = None, fill: float = 0) -> torch.Tensor:
        self._turn += 1
        assert capacity is not None
        if self._turn == len(self._buffers):
            self._buffers.append(torch.full((capacity,), 1 << 30, dtype=torch.from_numpy(values[:0]).dtype))
        buffer = self._buffers[self._turn]
        assert len(buffer) == capacity, "the capacities of a graph are always the same"
        buffer[: len(values)] = torch.from_numpy(values)
        return buffer


def padded(x: torch.Tensor, rows: int) -> torch.Tensor:
    return torch.cat([x, torch.zeros(rows - len(x), *x.shape[1:], dtype=x.dtype, device=x.device)])


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("page_size", [1, 16])
def test_a_captured_batch_follows_later_plans(page_size: int):
    """What was captured keeps the metadata of its own plan: only the content of its tensors changes."""
    case = AttentionCase([Row(n, 1) for n in (3, 200, 15, 16, 1)], shape(page_size), scattered=True)
    backend, staging = FlashInferAttnBackend(case.config()), FixedStaging()
    case.store_new(0)
    batch, expected = case.batch(), case.expected()
    captured = backend.plan(replace(batch, reqs=batch.reqs[:1]), staging, padded=6)
    for rows in ([3, 0, 4], [0, 1, 2, 3, 4], [1], [2, 1]):
        staging.begin()
        backend.plan(replace(batch, reqs=tuple(batch.reqs[row] for row in rows)), staging, padded=6)
        q, k, v = (padded(x[rows], 6) for x in (case.q, case.k, case.v))
        out = backend.forward(q, k, v, 0, captured)
        assert out.shape[0] == 6
        assert_close(out[: len(rows)], expected[rows], torch.bfloat16)


@pytest.mark.usefixtures("fake")
def test_graphs_of_several_sizes_do_not_disturb_one_another():
    case = AttentionCase([Row(n, 1) for n in (3, 200, 15, 16, 1)], shape(), scattered=True)
    backend = FlashInferAttnBackend(case.config())
    case.store_new(0)
    batch, expected = case.batch(), case.expected()
    sizes = {2: FixedStaging(), 5: FixedStaging(), 4: FixedStaging()}
    captured = {}
    for size, staging in sizes.items():
        captured[size] = backend.plan(replace(batch, reqs=batch.reqs[:size]), staging, padded=size)
    for size in (4, 2, 5, 2):
        sizes[size].begin()
        backend.plan(replace(batch, reqs=batch.reqs[:size]), sizes[size], padded=size)
        out = backend.forward(*(x[:size] for x in (case.q, case.k, case.v)), 0, captured[size])
        assert_close(out, expected[:size], torch.bfloat16)


@pytest.mark.usefixtures("fake")
def test_a_batch_goes_without_a_graph_only_where_sharing_spares_much(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(flashinfer_backend, "COST", GroupCost(rows=1, tokens=0))
    case = AttentionCase(TREE[:5], shape())
    backend = FlashInferAttnBackend(case.config())
    plain = case.batch()
    shared = replace(plain, groups=(PrefixGroup(np.arange(5, dtype=np.int32), 0, 64),))
    assert backend.can_replay(plain)
    assert backend.can_replay(shared)
    monkeypatch.setattr(
        flashinfer_backend, "MIN_BYTES_SPARED", 4 * 64 * 2 * 2 * 64 * 2
    )  # tokens, K and V, heads, bytes
    assert not backend.can_replay(shared)
    assert FlashInferAttnBackend(replace(case.config(), shared_prefix=False)).can_replay(shared)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": torch.float32}, "takes bfloat16 and float16, not dtype=torch.float32"),
        ({"head_dim": 80}, "takes head_dim 64, 128 and 256, not 80"),
    ],
)
@pytest.mark.usefixtures("fake")
def test_what_flashinfer_has_no_kernel_for_is_refused(change: dict[str, Any], message: str):
    case = AttentionCase([Row(0, 1)], replace(shape(), **change))
    with pytest.raises(ValueError, match=message):
        FlashInferAttnBackend(case.config())


@pytest.mark.parametrize(
    ("form", "message"),
    [
        (
            AttnForm(scale=0.125, windows=(0, 4096)),
            "serves no model with sliding windows, here of 4096 tokens: take 'a",
        ),
        (AttnForm(scale=0.125, softcap=50.0, windows=(0, 0)), "serves no model with soft-capped scores, here at 50: t"),
        (AttnForm(scale=0.125, windows=(0, 0), sinks=True), "serves no model with attention sinks: take 'auto' or 'tr"),
    ],
)
@pytest.mark.usefixtures("fake")
def test_windows_capped_scores_and_sinks_are_refused(form: AttnForm, message: str):
    config = AttentionCase([Row(0, 1)], shape()).config()
    with pytest.raises(ValueError, match=message):
        FlashInferAttnBackend(replace(config, form=form))


@pytest.mark.usefixtures("fake")
def test_the_scale_is_that_of_the_model():
    case = AttentionCase([Row(9, 1), Row(3, 4)], shape(), form=AttnForm(scale=0.4, windows=(0, 0)))
    assert_close(run(case), case.expected(), torch.bfloat16)


def test_a_cpu_is_refused():
    with pytest.raises(ValueError, match="needs an NVIDIA GPU, not device='cpu'"):
        flashinfer_calls.capability(torch.device("cpu"))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "flashinfer", None)
    flashinfer_calls.library.cache_clear()
    case = AttentionCase([Row(0, 1)], shape())
    with pytest.raises(ValueError, match=r"needs the package flashinfer-python: pip install 'minisgl\[gpu\]'"):
        FlashInferAttnBackend(case.config())


def test_the_workspace_holds_two_tiles_of_prompts_a_multiprocessor():
    """128 queries of a group of 8 heads, 128 dims and a sum each: 139 MB on 132 multiprocessors, over the least."""
    alone = flashinfer_calls.CallShape(
        16, num_qo_heads=8, num_kv_heads=1, head_dim=128, dtype=torch.bfloat16, scale=1.0
    )
    assert alone.float_workspace_bytes(max_rows=1, num_sms=132) > 2 * 132 * 128 * 8 * 129 * 4 > 128 << 20


def test_the_workspace_holds_the_larger_tiles_of_decodes_in_large_groups():
    """A graph of 100 rows, each of 40 heads, reckons with 99 tiles of 64 more than it needs to hold them all."""
    alone = flashinfer_calls.CallShape(
        1, num_qo_heads=40, num_kv_heads=1, head_dim=128, dtype=torch.bfloat16, scale=1.0
    )
    tiles = -(-100 * 40 // 64) + 99
    assert alone.float_workspace_bytes(max_rows=100, num_sms=1) > tiles * 64 * 40 * 129 * 4 > 128 << 20


ROWS = np.arange(256)


def test_pieces_give_all_multiprocessors_work():
    """64 tiles of 32 heads and 256 rows for 132 of them: two pieces fill 128."""
    pieces = cut_ranges([SharedRange(ROWS, 0, 8192)], num_qo_heads=32, num_sms=132, page_size=16)
    assert [(begin, end) for _, begin, end in pieces] == [(0, 4096), (4096, 8192)]


def test_pieces_are_whole_pages_and_cover_every_range():
    ranges = [SharedRange(ROWS[:100], 0, 4800), SharedRange(ROWS[:9], 4800, 4816)]
    pieces = cut_ranges(ranges, num_qo_heads=16, num_sms=132, page_size=16)
    assert all(begin % 16 == 0 for _, begin, _ in pieces)
    assert [begin for _, begin, _ in pieces[1:]] == [end for _, _, end in pieces[:-1]]
    assert pieces[-1].end == 4816
    assert len(pieces) > 2


def test_fa3_reads_for_many_rows_and_fa2_for_few():
    assert prefers_fa3([SharedRange(ROWS, 0, 8192)], group=4)
    assert not prefers_fa3([SharedRange(ROWS[:32], 0, 8192)], group=4)
    assert not prefers_fa3([], group=4)


def test_rows_are_made_of_their_own_part_and_those_of_their_pieces():
    """Five rows; the pieces of three of them and of two make results 5 .. 9."""
    pieces = [SharedRange(np.array([0, 1, 3]), 0, 4), SharedRange(np.array([1, 3]), 4, 8)]
    parts, begins = merge_parts(pieces, 5)
    assert [part.tolist() for part in np.split(parts, begins[1:-1])] == [[0, 5], [1, 6, 8], [2], [3, 7, 9], [4]]


@pytest.mark.gpu
@pytest.mark.parametrize("group", [2, 4, 5])
@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("name", BATCHES)
def test_on_a_gpu_every_kind_of_batch_is_as_by_the_book(name: str, page_size: int, group: int):
    pytest.importorskip("flashinfer")
    case = AttentionCase(BATCHES[name], shape(page_size, group, head_dim=128, device="cuda"), scattered=True)
    assert_close(run(case), case.expected(), torch.bfloat16)


@pytest.mark.gpu
@pytest.mark.parametrize("page_size", [1, 16])
def test_on_a_gpu_shared_prefixes_are_read_once(page_size: int, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("flashinfer")
    monkeypatch.setattr(flashinfer_backend, "COST", GroupCost(rows=1, tokens=0))
    case = AttentionCase(TREE, shape(page_size, 4, head_dim=128, device="cuda"), scattered=True)
    assert_close(run(case, tree_groups(), layers=[0, 1]), case.expected(), torch.bfloat16)
