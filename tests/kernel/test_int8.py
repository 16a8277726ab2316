"""Linear layers of integers times activations in int8, on every instruction set of this processor.

They are held to their definition in float64, to the reference in torch, and a row to itself beside any others.
"""

from __future__ import annotations

import pytest
import torch
from support.needs import CPP_KERNELS
from support.norm_linear import assert_one_call_is_two
from support.pairs import in_pairs

from minisgl.kernel import torch_ops
from minisgl.kernel.int8 import HALF_OFFSETS, SINGLE_OFFSETS, common_zero, pack_int8
from minisgl.kernel.linear import GATES
from minisgl.utils.grouped_tensor import GROUP, GroupedTensor

pytestmark = [
    CPP_KERNELS,
    pytest.mark.usefixtures("instruction_set"),
]

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
BITS = pytest.mark.parametrize("bits", [4, 8])
FORMS = pytest.mark.parametrize("form", ["zero", "half", "single"])


def random_weight(outputs: int, inputs: int, bits: int, form: str = "half") -> GroupedTensor:
    """form: "zero" has a code for 0, "half" offsets in float16, "single" numbers that only float32 holds."""
    generator = torch.Generator().manual_seed(outputs)
    codes = torch.randint(0, 2**bits, (outputs, inputs), dtype=torch.uint8, generator=generator)
    scale, offset = torch.randn(2, outputs, inputs // GROUP, generator=generator) / 2**bits
    if form != "single":
        scale, offset = scale.half().float(), offset.half().float()
    return GroupedTensor(codes, scale, scale * -(2 ** (bits - 1)) if form == "zero" else offset, bits)


def random_rows(rows: int, inputs: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Some numbers are twenty times the others."""
    x = torch.randn(rows, inputs, generator=torch.Generator().manual_seed(rows))
    x[:, ::17] *= 20
    return x.to(dtype)


def exact(x: torch.Tensor, weight: GroupedTensor) -> torch.Tensor:
    """The definition, [T, N] float64."""
    groups = x.float().unflatten(1, (-1, GROUP))
    greatest = groups.abs().amax(-1)
    q = (groups * torch.where(greatest > 0, torch.tensor(127.0) / greatest, 0)[..., None]).round().double()
    dots = torch.einsum("tgk,ngk->tng", q, weight.codes.unflatten(1, (-1, GROUP)).double())
    terms = weight.scale.double() * dots + weight.offset.double() * q.sum(-1)[:, None]
    return ((greatest / 127).double()[:, None] * terms).sum(-1)


@in_pairs(
    rows=[0, 1, 2, 7, 8, 31, 33, 70],
    shape=[(32, 32), (1, 64), (100, 96), (192, 576)],
    form=["zero", "half", "single"],
    bits=[4, 8],
    dtype=[torch.float32, torch.bfloat16],
)
def test_sums_are_those_of_the_definition(rows: int, shape: tuple[int, int], form: str, bits: int, dtype: torch.dtype):
    weight, x = random_weight(*shape, bits, form), random_rows(rows, shape[1], dtype)
    got = pack_int8([weight], dtype).multiply(x)
    assert got.dtype == dtype
    tolerance = {"rtol": 1e-5 if dtype == torch.float32 else 2**-8, "atol": 3e-5}
    torch.testing.assert_close(got.double(), exact(x, weight), **tolerance)


@DTYPES
@BITS
def test_the_reference_has_the_same_numbers(bits: int, dtype: torch.dtype):
    weight, x, bias = random_weight(70, 96, bits), random_rows(9, 96, dtype), random_rows(1, 70, dtype)[0]
    tolerance = {"rtol": 1e-5 if dtype == torch.float32 else 2**-7, "atol": 3e-5}
    got = pack_int8([weight], dtype, bias).multiply(x)
    torch.testing.assert_close(got, torch_ops.int8_linear(x, weight, bias), **tolerance)


@DTYPES
@BITS
@FORMS
def test_a_row_has_the_same_bits_beside_any_number_of_rows(form: str, bits: int, dtype: torch.dtype):
    layer, x = pack_int8([random_weight(100, 192, bits, form)], dtype), random_rows(256, 192, dtype)
    together = layer.multiply(x)
    for count in (1, 2, 7, 8, 31, 32, 33):
        for begin in (0, 5, 256 - count):
            rows = slice(begin, begin + count)
            assert torch.equal(layer.multiply(x[rows]), together[rows])


@BITS
@FORMS
def test_every_instruction_set_with_fused_multiply_add_has_the_same_bits(
    form: str, bits: int, instruction_set: str, digests: dict[str, torch.Tensor]
):
    if instruction_set == "portable":
        pytest.skip("it has no fused multiply-add")
    x = random_rows(40, 192)
    got = pack_int8([random_weight(100, 192, bits, form)], torch.float32).multiply(x)
    assert torch.equal(got, digests.setdefault(f"{form} {bits}", got))


@pytest.fixture(scope="module")
def digests() -> dict[str, torch.Tensor]:
    """Results by case, of the first instruction set that came."""
    return {}


@DTYPES
def test_threads_change_nothing(dtype: torch.dtype):
    layer, before, results = pack_int8([random_weight(640, 576, bits=4)], dtype), torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(layer.multiply(random_rows(40, 576, dtype)))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*results)


@in_pairs(
    tokens=[3, 33],
    rows=[(64, 64), (40, 40), (80,), (30, 20, 30)],
    gate=["silu", "gelu_pytorch_tanh"],
    dtype=[torch.float32, torch.bfloat16],
)
def test_a_gate_joins_the_halves_however_they_are_cut(
    tokens: int, rows: tuple[int, ...], gate: str, dtype: torch.dtype
):
    parts = [random_weight(n, 96, bits=4) for n in rows]
    x, bias = random_rows(tokens, 96, dtype), random_rows(1, sum(rows), dtype)[0]
    expected = GATES[gate](torch.cat([exact(x, part) for part in parts], dim=1) + bias)
    tolerance = {"rtol": 1e-5 if dtype == torch.float32 else 2**-8, "atol": 1e-4}
    torch.testing.assert_close(pack_int8(parts, dtype, bias, gate).multiply(x).double(), expected, **tolerance)


@pytest.mark.parametrize(
    ("dtype", "norm_dtype"),
    [(torch.float32, torch.float32), (torch.bfloat16, torch.bfloat16), (torch.bfloat16, torch.float32)],
    ids=str,
)
@BITS
@FORMS
@pytest.mark.parametrize("gate", [None, "silu"])
def test_a_norm_before_it_is_to_the_bit_the_same_in_one_call(
    gate: str | None, form: str, bits: int, dtype: torch.dtype, norm_dtype: torch.dtype
):
    layer = pack_int8([random_weight(70, 96, bits, form)], dtype, random_rows(1, 70, dtype)[0], gate)
    norm_weight = random_rows(1, 96, norm_dtype)[0]
    for rows in (0, 1, 7, 32, 256):
        x, residual = random_rows(rows, 96, dtype), random_rows(rows, 96, dtype).flip(0)
        assert_one_call_is_two(layer, x, residual, norm_weight)


@DTYPES
@BITS
@pytest.mark.parametrize("rows", [1, 9, 33])
def test_rows_that_begin_anywhere_in_memory(rows: int, bits: int, dtype: torch.dtype):
    layer, x = pack_int8([random_weight(1, 32, bits)], dtype), random_rows(rows, 32, dtype)
    shifted = torch.full((rows * 32 + 2,), torch.nan, dtype=dtype)[1:-1].view(rows, 32).copy_(x)
    apart = torch.full((rows, 70), torch.nan, dtype=dtype)[:, 1:33].copy_(x)
    for same in (shifted, apart):
        assert torch.equal(layer.multiply(same), layer.multiply(x))


def test_parts_of_4_and_8_bits_are_one_weight():
    parts = [random_weight(n, 96, bits) for n, bits in ((64, 4), (32, 8), (10, 4))]
    x = random_rows(3, 96)
    expected = torch.cat([exact(x, part) for part in parts], dim=1)
    torch.testing.assert_close(pack_int8(parts, torch.float32).multiply(x).double(), expected, rtol=1e-5, atol=3e-5)


def test_the_largest_codes_and_activations_overflow_nothing():
    weight = GroupedTensor(torch.full((40, 64), 255, dtype=torch.uint8), torch.ones(40, 2), torch.zeros(40, 2), bits=8)
    for sign in (1.0, -1.0):
        x = torch.full((20, 64), sign)
        assert torch.equal(pack_int8([weight], torch.float32).multiply(x), torch.full((20, 40), sign * 255 * 64))


@DTYPES
def test_a_nan_or_an_infinity_stays_in_its_row_and_is_seen(dtype: torch.dtype):
    x = random_rows(20, 64, dtype)
    x[3, 40], x[17, 2] = torch.nan, torch.inf
    for form in ("zero", "half"):
        bad = ~pack_int8([random_weight(40, 64, bits=4, form=form)], dtype).multiply(x).isfinite()
        assert bad[[3, 17]].all()
        assert bad.any(dim=1).sum() == 2


@pytest.mark.parametrize("value", [1e-40, 1e-37], ids=str)
@BITS
@FORMS
def test_a_group_of_which_127_by_the_greatest_is_no_number_is_zero(form: str, bits: int, value: float):
    weight, x = random_weight(40, 64, bits, form), random_rows(3, 64)
    x[1, GROUP:] = value
    got = pack_int8([weight], torch.float32).multiply(x)
    x[1, GROUP:] = 0
    torch.testing.assert_close(got.double(), exact(x, weight), rtol=1e-5, atol=3e-5)


def test_a_group_of_zeros_is_zero():
    weight, x = random_weight(40, 64, bits=8), random_rows(1, 64)
    x[0, :GROUP] = 0
    alone = exact(x[:, GROUP:], weight.narrow(1, GROUP, GROUP))
    torch.testing.assert_close(pack_int8([weight], torch.float32).multiply(x).double(), alone, rtol=1e-5, atol=3e-5)


def test_scales_are_kept_in_the_least_memory_that_is_exact():
    weights = {form: random_weight(64, 96, bits=4, form=form) for form in ("zero", "half", "single")}
    assert [common_zero([weight]) for weight in weights.values()] == [8, HALF_OFFSETS, SINGLE_OFFSETS]
    assert common_zero([weights["zero"], weights["half"]]) == HALF_OFFSETS
    assert common_zero([weights["zero"], weights["single"]]) == SINGLE_OFFSETS
    infinite = GroupedTensor(weights["zero"].codes, torch.full((64, 3), torch.inf), weights["zero"].offset, bits=4)
    assert common_zero([infinite]) == SINGLE_OFFSETS
