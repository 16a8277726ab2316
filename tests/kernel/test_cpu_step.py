"""What a step does before and after its layers, in C++ against its reference in torch."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.needs import CPP_KERNELS

from minisgl.kernel import BROKEN, cpu_step, torch_ops
from minisgl.utils.grouped_tensor import GROUP

pytestmark = [CPP_KERNELS, pytest.mark.usefixtures("instruction_set")]
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
SIZES = pytest.mark.parametrize("size", [1, 7, 16, 100, 1024, 3000])
NAN, INF = math.nan, math.inf


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@DTYPES
@SIZES
@pytest.mark.parametrize("rows", [0, 1, 5, 200])
def test_the_best_token_is_that_of_torch(rows: int, size: int, dtype: torch.dtype):
    logits = random(rows, size).to(dtype)
    assert cpu_step.best_tokens(logits).tolist() == logits.argmax(dim=-1).tolist()


@DTYPES
@given(st.lists(st.sampled_from([-INF, -1.0, -0.0, 0.0, 2.0, INF, NAN]), min_size=1, max_size=40), st.integers(0, 2000))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_of_equal_logits_the_first_is_best_and_none_is_where_one_is_no_number(
    dtype: torch.dtype, values: list[float], before: int
):
    logits = torch.tensor([[-3.0] * before + values, values + [-3.0] * before], dtype=dtype)
    assert cpu_step.best_tokens(logits).tolist() == torch_ops.best_tokens(logits).tolist()


def test_logits_may_lie_among_others():
    logits = random(4, 50)
    assert cpu_step.best_tokens(logits[:, 3:40]).tolist() == logits[:, 3:40].argmax(dim=-1).tolist()


@DTYPES
@SIZES
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_a_row_with_what_is_no_number_is_broken_and_no_other(bad: float, size: int, dtype: torch.dtype):
    hidden = random(4, size + 2).to(dtype)[:, :size] * 1e37
    for row, place in ((1, 0), (3, size - 1)):
        hidden[row, place] = bad
    tokens = torch.arange(4, dtype=torch.int32)
    cpu_step.mark_broken(hidden, tokens)
    assert tokens.tolist() == [0, BROKEN, 2, BROKEN]


def of_a_step(**changes: Any) -> dict[str, torch.Tensor]:
    given = {
        "page_table": [[0] * 3, [1] * 3],
        "rows": [1, -1, 0],
        "cols": [2, 0, 0, 9],
        "pages": [7, 8, 9, 9],
        "input_ids": [5, 6, 0, 0],
        "last": [1, 2, 3],
        "prev_rows": [-1, 2, 0],
        "prev_tokens": [40, 41, BROKEN],
    }
    return {name: torch.tensor(values, dtype=torch.int32) for name, values in (given | changes).items()}


@pytest.mark.parametrize("changes", [{}, {"rows": []}, {"last": [], "prev_rows": []}])
def test_a_step_begins_with_what_has_changed(changes: dict[str, Any]):
    ours, expected = of_a_step(**changes), of_a_step(**changes)
    cpu_step.begin_step(**ours)
    torch_ops.begin_step(**expected)
    for name, values in expected.items():
        assert ours[name].tolist() == values.tolist(), name


def test_what_a_step_begins_with_is_written_where_it_belongs():
    step = of_a_step()
    cpu_step.begin_step(**step)
    assert step["page_table"].tolist() == [[9, 0, 0], [1, 1, 7]]
    assert step["input_ids"].tolist() == [5, 6, 0, 40]


@DTYPES
@pytest.mark.parametrize("tokens", [0, 1, 3, 200])
@pytest.mark.parametrize("dim", [2, 6, 64])
def test_turns_of_positions(dim: int, tokens: int, dtype: torch.dtype):
    frequencies = 10000.0 ** -(torch.arange(0, dim, 2) / dim)
    positions = torch.arange(tokens, dtype=torch.int32) * 37
    ours, expected = (ops.rotary_turns(frequencies, positions, dtype) for ops in (cpu_step, torch_ops))
    for one, other in zip(ours, expected, strict=True):
        assert one.shape == (tokens, 1, dim)
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6 if dtype == torch.float32 else 2**-8)


@DTYPES
@pytest.mark.parametrize("size", [32, 64, 576])
@pytest.mark.parametrize("tokens", [0, 1, 300])
def test_rows_of_integers_are_looked_up(tokens: int, size: int, dtype: torch.dtype):
    scale, offset = random(20, size // GROUP), random(20, size // GROUP, seed=1)
    codes = torch.randint(0, 256, (20, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(2))
    ids = torch.arange(tokens) * 7 % 20
    ours, expected = (ops.look_up(scale, offset, codes, ids, dtype) for ops in (cpu_step, torch_ops))
    assert torch.equal(ours, expected)
