"""Linear layers on packed floats in C++: against torch, and each row whatever its batch mates."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from support.needs import CPP_KERNELS
from support.norm_linear import assert_one_call_is_two
from support.pairs import in_pairs

from minisgl.kernel.cpu_linear import FloatPanels, PackedLinear
from minisgl.kernel.linear import GATES

pytestmark = [
    CPP_KERNELS,
    pytest.mark.usefixtures("instruction_set"),
]

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
SHAPES = [(32, 32), (1, 5), (100, 95), (33, 70), (192, 576)]
ROWS = [1, 2, 8, 31, 32, 33, 256]


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def pack(weight: torch.Tensor, dtype: torch.dtype, bias: torch.Tensor | None = None, gate: str | None = None):
    panels = FloatPanels((weight.shape[0], weight.shape[1]), dtype, gate)
    panels.write(0, weight)
    return panels.finish(bias)


def tolerance(dtype: torch.dtype) -> float:
    return 1e-5 if dtype == torch.float32 else 2**-8


@in_pairs(rows=[0, *ROWS], shape=SHAPES, dtype=[torch.float32, torch.bfloat16], has_bias=[False, True])
def test_the_product_is_torch_s(rows: int, shape: tuple[int, int], dtype: torch.dtype, has_bias: bool):
    weight, x = random(*shape).to(dtype), random(rows, shape[1], seed=1).to(dtype)
    bias = random(shape[0], seed=2).to(dtype) if has_bias else None
    got = pack(weight, dtype, bias).multiply(x)
    exact = F.linear(x.double(), weight.double(), None if bias is None else bias.double())
    assert got.dtype == dtype
    torch.testing.assert_close(got.double(), exact, rtol=tolerance(dtype), atol=5e-5)


@in_pairs(shape=[(64, 64), (80, 95), (2, 3)], gate=list(GATES), dtype=[torch.float32, torch.bfloat16])
def test_a_gate_joins_the_halves(shape: tuple[int, int], gate: str, dtype: torch.dtype):
    weight, x, bias = random(*shape).to(dtype), random(35, shape[1], seed=1).to(dtype), random(shape[0]).to(dtype)
    expected = GATES[gate](F.linear(x.double(), weight.double(), bias.double()))
    got = pack(weight, dtype, bias, gate).multiply(x)
    torch.testing.assert_close(got.double(), expected, rtol=tolerance(dtype), atol=5e-5)


@DTYPES
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("gated", [False, True])
def test_a_row_does_not_depend_on_the_rows_beside_it(shape: tuple[int, int], dtype: torch.dtype, gated: bool):
    outputs, inputs = shape
    weight = pack(random(outputs * 2, inputs), dtype, None, "silu" if gated else None)
    x = random(256, inputs, seed=1).to(dtype)
    together = weight.multiply(x)
    for rows in ROWS:
        for first in (0, 256 - rows, (256 - rows) // 3):
            assert torch.equal(weight.multiply(x[first : first + rows]), together[first : first + rows]), rows


@DTYPES
def test_a_nan_stays_in_its_row(dtype: torch.dtype):
    x = random(40, 70).to(dtype)
    x[3, 69] = torch.nan
    bad = pack(random(40, 70, seed=1), dtype).multiply(x).isnan()
    assert bad[3].all()
    assert bad.any(dim=1).sum() == 1


@DTYPES
def test_threads_change_nothing(dtype: torch.dtype):
    weight, before, results = pack(random(640, 576), dtype), torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append([weight.multiply(random(rows, 576, seed=rows).to(dtype)) for rows in (1, 5, 300)])
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for result in results[1:] for a, b in zip(result, results[0], strict=True))


@DTYPES
@pytest.mark.parametrize("source", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_rows_of_any_floats_are_converted_as_torch_does(source: torch.dtype, dtype: torch.dtype):
    weight = random(70, 50).to(source)
    weight[0, :6] = torch.tensor([torch.inf, -torch.inf, 0.0, -0.0, 6e-8, -3e-5])
    got, expected = pack(weight, dtype).multiply(torch.eye(50).to(dtype)).T, weight.to(dtype)
    assert torch.equal(got[1:], expected[1:])
    assert got[0, 1:].isnan().all() == expected[0, :2].isinf().all()


@DTYPES
@pytest.mark.parametrize("gate", [None, "silu"])
def test_parts_may_come_in_any_order_and_rows_apart(gate: str | None, dtype: torch.dtype):
    weight = random(90, 100)
    panels = FloatPanels((90, 64), dtype, gate)
    for begin, end in ((40, 90), (0, 7), (7, 40)):
        panels.write(begin, weight[begin:end, 36:])
    x = random(3, 64, seed=1).to(dtype)
    assert torch.equal(panels.finish().multiply(x), pack(weight[:, 36:], dtype, gate=gate).multiply(x))


def test_rows_of_x_may_lie_apart():
    weight, x = random(8, 4), random(4, 3).T
    assert torch.equal(pack(weight, torch.float32).multiply(x), pack(weight, torch.float32).multiply(x.contiguous()))


def test_what_it_cannot_multiply_is_refused():
    packed: PackedLinear = pack(random(8, 4), torch.float32)
    for x in (random(2, 5), random(2, 4).double()):
        with pytest.raises(AssertionError):
            packed.multiply(x)


@pytest.mark.parametrize(
    ("dtype", "weight_dtype"),
    [(torch.float32, torch.float32), (torch.bfloat16, torch.bfloat16), (torch.bfloat16, torch.float32)],
    ids=str,
)
@pytest.mark.parametrize("rows", [0, 1, 33])
def test_a_norm_before_it_is_to_the_bit_the_same_in_one_call(rows: int, dtype: torch.dtype, weight_dtype: torch.dtype):
    layer, norm_weight = pack(random(40, 70), dtype), random(70, seed=1).to(weight_dtype)
    x, residual = (random(rows, 70, seed=seed).to(dtype) for seed in (2, 3))
    assert_one_call_is_two(layer, x, residual, norm_weight)


def test_a_norm_of_another_size_is_refused():
    layer, x = pack(random(40, 70), torch.float32), random(2, 70)
    with pytest.raises(AssertionError):
        layer.add_norm_multiply(x, None, torch.ones(69), 1e-5)
    with pytest.raises(AssertionError):
        layer.add_norm_multiply(x, random(1, 70), torch.ones(70), 1e-5)
