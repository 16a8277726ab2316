"""Linear layers on grouped weights in C++: against the reference, and each row whatever its batch mates."""

from __future__ import annotations

import pytest
import torch
from support.needs import CPP_KERNELS
from support.pairs import in_pairs

from minisgl.kernel import torch_ops
from minisgl.kernel.grouped import pack_groups
from minisgl.kernel.linear import GATES
from minisgl.utils.grouped_tensor import GroupedTensor

pytestmark = [CPP_KERNELS, pytest.mark.usefixtures("best_instruction_set")]

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
BITS = pytest.mark.parametrize("bits", [4, 8])


def random_weight(outputs: int, inputs: int, bits: int) -> GroupedTensor:
    generator = torch.Generator().manual_seed(outputs)
    codes = torch.randint(0, 2**bits, (outputs, inputs), dtype=torch.uint8, generator=generator)
    scale, offset = torch.randn(2, outputs, inputs // 32, generator=generator) / 2**bits
    return GroupedTensor(codes, scale, offset, bits)


def random_rows(rows: int, inputs: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(rows, inputs, generator=torch.Generator().manual_seed(rows)).to(dtype)


@in_pairs(
    rows=[0, 1, 2, 12, 13, 16, 17, 32, 33, 70],
    shape=[(32, 32), (1, 64), (100, 96), (192, 576)],
    bits=[4, 8],
    dtype=[torch.float32, torch.bfloat16],
    bias=[False, True],
)
def test_the_product_is_that_with_the_dequantised_weight(
    rows: int, shape: tuple[int, int], bits: int, dtype: torch.dtype, bias: bool
):
    weight, x = random_weight(*shape, bits), random_rows(rows, shape[1], dtype)
    vector = random_rows(1, shape[0], dtype)[0] if bias else None
    got = pack_groups([weight], dtype, vector).multiply(x)
    exact = x.double() @ weight.dequantize().to(dtype).double().T + (vector if vector is not None else 0)
    assert got.dtype == dtype
    tolerance = 1e-5 if dtype == torch.float32 else 2**-8
    torch.testing.assert_close(got.double(), exact, rtol=tolerance, atol=2e-5)
    torch.testing.assert_close(got, torch_ops.grouped_linear(x, weight, vector), rtol=3 * tolerance, atol=1e-4)


@pytest.mark.parametrize("rows", [(64, 32, 10), (10, 64), (7, 5)], ids=str)
def test_parts_are_one_weight_as_wide_as_their_widest_codes(rows: tuple[int, ...]):
    parts = [random_weight(n, 96, bits=8 if i == 1 else 4) for i, n in enumerate(rows)]
    x, packed = random_rows(3, 96, torch.float32), pack_groups(parts, torch.float32)
    assert packed.shape == (sum(rows), 96)
    expected = torch.cat([torch_ops.grouped_linear(x, part, None) for part in parts], dim=1)
    torch.testing.assert_close(packed.multiply(x), expected, rtol=3e-5, atol=1e-4)


@DTYPES
@pytest.mark.parametrize("gate", ["silu", "gelu_pytorch_tanh"])
@pytest.mark.parametrize("rows", [(64, 64), (40, 40), (80,), (30, 20, 30)], ids=str)
def test_a_gate_joins_the_halves_however_they_are_cut(rows: tuple[int, ...], gate: str, dtype: torch.dtype):
    parts = [random_weight(n, 96, bits=4) for n in rows]
    x, bias = random_rows(3, 96, dtype), random_rows(1, sum(rows), dtype)[0]
    both = torch.cat([x.double() @ part.dequantize().to(dtype).double().T for part in parts], dim=1) + bias
    expected = GATES[gate](both)
    tolerance = 1e-5 if dtype == torch.float32 else 2**-8
    got = pack_groups(parts, dtype, bias, gate).multiply(x)
    torch.testing.assert_close(got.double(), expected, rtol=tolerance, atol=2e-5)


@DTYPES
@BITS
def test_a_row_does_not_depend_on_the_rows_beside_it(bits: int, dtype: torch.dtype):
    weight, x = pack_groups([random_weight(100, 192, bits)], dtype), random_rows(80, 192, dtype)
    together = weight.multiply(x)
    for begin, end in ((0, 1), (3, 5), (7, 20), (40, 57), (10, 80)):
        assert torch.equal(weight.multiply(x[begin:end]), together[begin:end])


@DTYPES
def test_a_nan_stays_in_its_row(dtype: torch.dtype):
    x = random_rows(20, 64, dtype)
    x[3, 40] = torch.nan
    bad = pack_groups([random_weight(40, 64, bits=4)], dtype).multiply(x).isnan()
    assert bad[3].all()
    assert bad.any(dim=1).sum() == 1


@DTYPES
def test_threads_change_nothing(dtype: torch.dtype):
    weight, x = pack_groups([random_weight(640, 576, bits=4)], dtype), random_rows(5, 576, dtype)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(weight.multiply(x))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*results)
