"""The linear kernel for a few rows, with all that it does on the way, against float32."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from support.pairs import in_pairs

from minisgl.kernel import torch_ops
from minisgl.kernel.linear import GATES
from minisgl.kernel.triton.linear import small_linear

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ROWS = pytest.mark.parametrize("rows", [1, 3, 8])


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, torch.bfloat16)


def assert_close(got: torch.Tensor, expected: torch.Tensor) -> None:
    """Products of bfloat16 are exact in float32; their sum is rounded once, and residual + x before."""
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got.float(), expected, rtol=2**-6, atol=2**-6 * (1 + float(expected.std())))


@ROWS
@pytest.mark.parametrize(
    ("features", "size"),
    [
        (7, 24),
        (40, 576),
        (9, 4608),
        (130, 40),
        pytest.param(4096, 1024, marks=pytest.mark.gpu),
        pytest.param(1024, 3072, marks=pytest.mark.gpu),
        pytest.param(151936, 1024, marks=pytest.mark.gpu),
        pytest.param(4096, 12288, marks=pytest.mark.gpu),
    ],
)
def test_a_plain_layer(features: int, size: int, rows: int):
    x, weight = random(rows, size), random(features, size, seed=1)
    out, total = small_linear(x, weight)
    assert total is x
    assert_close(out, F.linear(x.float(), weight.float()))


@ROWS
def test_bias(rows: int):
    x, weight, bias = random(rows, 40), random(30, 40, seed=1), random(30, seed=2)
    assert_close(small_linear(x, weight, bias)[0], F.linear(x.float(), weight.float(), bias.float()))


@ROWS
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize(("features", "size"), [(22, 40), pytest.param(6144, 1024, marks=pytest.mark.gpu)])
@pytest.mark.filterwarnings("ignore:overflow")  # as it should, far below 0
def test_a_gate(features: int, size: int, gate: str, rows: int):
    x, weight, bias = random(rows, size), random(features, size, seed=1), random(features, seed=2)
    expected = GATES[gate](F.linear(x.float(), weight.float(), bias.float()))
    assert_close(small_linear(x, weight, bias, gate)[0], expected)


@in_pairs(norm_dtype=[torch.bfloat16, torch.float32], has_residual=[False, True], rows=[1, 3, 8])
@pytest.mark.parametrize(("features", "size"), [(30, 600), (4, 5000), pytest.param(24576, 4096, marks=pytest.mark.gpu)])
def test_a_norm_before_and_the_new_residual(
    features: int, size: int, norm_dtype: torch.dtype, has_residual: bool, rows: int
):
    x, weight, norm_weight = random(rows, size), random(features, size, seed=1), random(size, seed=2).to(norm_dtype)
    residual = random(rows, size, seed=3) if has_residual else None
    before = [x.clone(), None if residual is None else residual.clone()]
    out, total = small_linear(x, weight, residual=residual, norm_weight=norm_weight, eps=1e-5)
    assert torch.equal(x, before[0])
    if residual is None:
        assert total is x
    else:
        assert torch.equal(residual, before[1])
        torch.testing.assert_close(total, x + residual, rtol=2**-7, atol=2**-8)
    normed = torch_ops.rms_norm(total.float(), norm_weight.float(), 1e-5)
    assert_close(out, F.linear(normed, weight.float()))
