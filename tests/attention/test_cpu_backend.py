"""The C++ backend against attention by the book, and bit for bit against itself however a text is computed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.attention import AttentionCase, Row, Shape, assert_close
from support.attention_batches import BATCHES, MIXED, WINDOWED, windowed
from support.needs import CPP_KERNELS

from minisgl.attention import AttnForm, cpu_backend, create_attention_backend
from minisgl.attention.shared_prefix import GroupCost
from minisgl.core import Batch
from minisgl.engine.staging import HostStaging

pytestmark = [CPP_KERNELS, pytest.mark.usefixtures("best_instruction_set")]

SHARING = [Row(200, 1, shared=192), Row(193, 1, shared=192), Row(70, 1), Row(250, 9, shared=192), Row(0, 70)]
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])


@pytest.fixture(autouse=True)
def _eager_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even short prefixes are shared."""
    monkeypatch.setattr(cpu_backend, "IN_PLACE", GroupCost(rows=1, tokens=1))


def run(case: AttentionCase, layer_id: int = 0) -> torch.Tensor:
    return case.run(layer_id, name="cpu")


@DTYPES
@pytest.mark.parametrize("name", BATCHES)
def test_every_kind_of_batch_is_as_by_the_book(name: str, dtype: torch.dtype):
    case = AttentionCase(BATCHES[name], Shape(dtype=dtype), scattered=True)
    assert_close(run(case), case.expected(), dtype)


@DTYPES
@pytest.mark.parametrize(
    ("group", "head_dim"),
    [
        (2, 1),
        (1, 2),
        (3, 7),
        (2, 16),
        (3, 24),
        (5, 40),
        (3, 64),
        (8, 64),
        (17, 64),
        (1, 80),
        (7, 96),
        (4, 128),
        (6, 192),
        (1, 256),
    ],
)
def test_every_shape_of_heads(group: int, head_dim: int, dtype: torch.dtype):
    case = AttentionCase(MIXED, Shape(group=group, head_dim=head_dim, dtype=dtype), scattered=True)
    assert_close(run(case), case.expected(), dtype)


@DTYPES
@pytest.mark.parametrize("page_size", [1, 7, 16, 64, 100])
def test_every_page_size(page_size: int, dtype: torch.dtype):
    case = AttentionCase(
        [Row(140, 1), Row(63, 1), Row(101, 70), Row(0, 21)], Shape(page_size, dtype=dtype), scattered=True
    )
    assert_close(run(case), case.expected(), dtype)


@DTYPES
@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("name", WINDOWED)
def test_every_kind_of_batch_with_a_window(name: str, page_size: int, dtype: torch.dtype):
    case = windowed(WINDOWED[name], Shape(page_size, dtype=dtype), scattered=True)
    for layer_id in range(2):
        assert_close(run(case, layer_id), case.expected(layer_id), dtype)


@pytest.mark.parametrize("window", [1, 2, 63, 64, 65, 128, 200, 500])
@pytest.mark.parametrize("cached", [0, 100])
def test_windows_that_end_around_chunks(cached: int, window: int):
    case = windowed([Row(cached, 150), Row(190, 1), Row(0, 3)], Shape(group=1), window)
    assert_close(run(case), case.expected(), torch.float32)


@DTYPES
@pytest.mark.parametrize("has_sinks", [False, True])
@pytest.mark.parametrize("softcap", [0.0, 0.5, 3.0, 50.0])
def test_soft_caps_and_sinks(softcap: float, has_sinks: bool, dtype: torch.dtype):
    form = AttnForm(scale=0.3, softcap=softcap, windows=(0, 20))
    case = AttentionCase(MIXED, Shape(dtype=dtype), scattered=True, form=form, has_sinks=has_sinks)
    for layer_id in range(2):
        assert_close(run(case, layer_id), case.expected(layer_id), dtype)


def test_sinks_of_the_models_own_dtype():
    case = AttentionCase(MIXED, Shape(dtype=torch.bfloat16), has_sinks=True)
    case.sinks = case.sinks.bfloat16()
    assert_close(run(case), case.expected(), torch.bfloat16)


@DTYPES
@pytest.mark.parametrize("softcap", [0.0, 5.0])
def test_scores_too_large_for_exp(softcap: float, dtype: torch.dtype):
    form = AttnForm(scale=1.0, softcap=softcap, windows=(0, 0))
    case = AttentionCase(MIXED, Shape(dtype=dtype), form=form)
    case.q *= 1000
    assert_close(run(case), case.expected(), dtype)


@DTYPES
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("broken", range(len(SHARING)))
def test_what_is_no_number_stays_in_its_row(broken: int, value: float, dtype: torch.dtype):
    """The row reads a prefix together with others."""
    case = AttentionCase(SHARING, Shape(group=4, head_dim=40, dtype=dtype))
    expected = run(case).clone()
    first = sum(row.extend for row in SHARING[:broken])
    own = slice(first, first + SHARING[broken].extend)
    for x in (case.q, case.k, case.v):
        x[own, :, 3::7] = value
    got = run(case)
    others = torch.ones(case.num_tokens, dtype=torch.bool)
    others[own] = False
    assert torch.equal(got[others], expected[others])
    assert not got[own].isfinite().all(dim=1).any()


@DTYPES
def test_queries_that_begin_anywhere_in_memory(dtype: torch.dtype):
    case = AttentionCase(MIXED, Shape(head_dim=24, dtype=dtype), scattered=True)
    expected = run(case).clone()
    apart = torch.full((case.num_tokens, 6 * 24 + 3), torch.nan, dtype=dtype)
    case.q = apart[:, 1:-2].view(case.num_tokens, 6, 24).copy_(case.q)
    assert torch.equal(run(case), expected)


# ---- what is read


def test_a_shared_prefix_is_read_once_up_to_its_last_whole_chunk():
    case = AttentionCase([Row(200, 1, shared=160)] * 3, Shape())
    plan, _ = case.backend("cpu").plan(case.batch(), HostStaging())
    assert plan.ranges_read.tolist() == [[2, 0, 128, 0, 3, 0]]
    assert plan.tokens_read.tolist() == [0, 1, 2]
    assert plan.rows_read[:, 4].tolist() == [128] * 3


def test_a_row_that_is_longer_than_the_window_shares_nothing():
    case = windowed([Row(200, 1, shared=128)] * 3, Shape(), window=150)
    with_window, without = case.backend("cpu").plan(case.batch(), HostStaging())
    assert len(with_window.ranges_read) == 0
    assert len(without.ranges_read) == 1


def test_nothing_is_read_together_where_that_is_turned_off():
    case = AttentionCase([Row(1000, 1, shared=1000)] * 20, Shape())
    backend = create_attention_backend("cpu", replace(case.config(), shared_prefix=False))
    assert len(backend.plan(case.batch(), HostStaging())[0].ranges_read) == 0


def test_layers_with_equal_windows_share_a_plan():
    form = AttnForm(scale=0.25, windows=(8, 0, 8, 4, 0, 100))
    case = AttentionCase([Row(70, 1)], Shape(), form=form)
    plans = case.backend("cpu").plan(case.batch(), HostStaging())
    assert plans[0] is plans[2]
    assert plans[1] is plans[4] is plans[5]
    assert len({id(plan) for plan in plans}) == 3


def test_the_page_table_is_read_by_every_forward_pass():
    case = AttentionCase([Row(6, 1)], Shape())
    other = AttentionCase([Row(6, 1)], Shape(), seed=1)
    expected = run(case)
    backend = case.backend("cpu")
    meta = backend.plan(case.batch(), HostStaging())
    case.table[0, :2] += 1  # unwritten slots
    assert backend.forward(case.q, case.k, case.v, 0, meta).isnan().all()
    case.table[0, :2] -= 1
    assert torch.equal(backend.forward(case.q, case.k, case.v, 0, meta), expected)
    assert not torch.equal(run(other), expected)


# ---- bit for bit


@contextmanager
def threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    yield
    torch.set_num_threads(before)


def in_steps(case: AttentionCase, uid: int, first: int, steps: list[int]) -> torch.Tensor:
    """A row by itself, so many of its new tokens in each step; then the rest."""
    backend, batch, row = case.backend("cpu"), case.batch(), case.rows[uid]
    results, done = [], 0
    while done < row.extend:
        count = min(steps.pop(0) if steps else row.extend, row.extend - done)
        cached = row.cached + done
        req = case.req(uid, Row(cached, count))
        meta = backend.plan(Batch((req,), batch.page_table_update, 0), HostStaging())
        tokens = slice(first + done, first + done + count)
        results.append(backend.forward(case.q[tokens], case.k[tokens], case.v[tokens], 0, meta, case.sinks))
        done += count
    return torch.cat(results)


@st.composite
def cases(draw) -> AttentionCase:
    """Any mix of rows and of what a model may want of attention."""
    page_size = draw(st.sampled_from([1, 4, 16]))
    rows = []
    for _ in range(draw(st.integers(1, 7))):
        shared = draw(st.sampled_from([0, 16, 64, 240, 320]))
        cached = shared + draw(st.sampled_from([0, 1, 15, 70]))
        rows.append(Row(cached, draw(st.sampled_from([1, 1, 1, 2, 9, 90])), shared, prefix=draw(st.integers(0, 1))))
    rows.sort(key=lambda row: row.extend > 1)
    head_dim = draw(st.sampled_from([8, 16, 40, 64]))
    form = AttnForm(
        scale=head_dim**-0.5,
        softcap=draw(st.sampled_from([0.0, 0.0, 1.5])),
        windows=(draw(st.sampled_from([0, 0, 1, 16, 31, 64, 100, 250])), 0),
    )
    dtype = draw(st.sampled_from([torch.float32, torch.bfloat16]))
    shape = Shape(page_size, draw(st.integers(1, 3)), draw(st.integers(1, 5)), head_dim, dtype)
    return AttentionCase(rows, shape, draw(st.booleans()), draw(st.integers(0, 99)), form, draw(st.booleans()))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(cases(), st.lists(st.integers(1, 64), max_size=4))
def test_a_token_gets_the_same_bits_in_company_alone_and_in_steps_on_any_number_of_threads(
    case: AttentionCase, steps: list[int]
):
    together = run(case)
    assert_close(together, case.expected(), case.shape.dtype)
    with threads(1):
        assert torch.equal(run(case), together)
    first = 0
    for uid, row in enumerate(case.rows):
        own = together[first : first + row.extend]
        assert torch.equal(in_steps(case, uid, first, []), own)
        assert torch.equal(in_steps(case, uid, first, list(steps)), own)
        first += row.extend


@DTYPES
def test_a_long_decode_that_threads_share_gets_the_same_bits(dtype: torch.dtype):
    case = AttentionCase([Row(1500, 1)], Shape(head_dim=64, dtype=dtype), has_sinks=True)
    with threads(1):
        alone = run(case)
    for number in (2, 3, 8):
        with threads(number):
            assert torch.equal(run(case), alone)


@DTYPES
def test_a_decode_gets_the_bits_of_a_prompt_and_of_a_shared_prefix(dtype: torch.dtype):
    """The last token of a prompt, alone after the others."""
    shape = Shape(head_dim=64, dtype=dtype)
    case = AttentionCase([Row(0, 200)], shape)
    whole = run(case)
    assert torch.equal(in_steps(case, 0, 0, [199]), whole)
    shared = AttentionCase([Row(200, 1, shared=192)] * 9, shape)
    plan, _ = shared.backend("cpu").plan(shared.batch(), HostStaging())
    assert len(plan.ranges_read) == 1
    together = run(shared)
    for uid in range(9):
        assert torch.equal(in_steps(shared, uid, uid, []), together[uid : uid + 1])
