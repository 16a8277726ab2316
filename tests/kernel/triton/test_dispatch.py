"""Which operations go to Triton's kernels, and what a linear layer is where these take no part in it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from minisgl import kernel
from minisgl.kernel import linear as linears
from minisgl.kernel import torch_ops, triton
from minisgl.kernel.gemm_tiling import gemm_tiling
from minisgl.kernel.triton import norm

BF16 = torch.bfloat16


def test_a_tensor_of_the_cpu_is_not_taken():
    assert not triton.can_take(torch.zeros(1))


def test_an_operation_is_found_in_its_module():
    assert triton.operation("norm", "rms_norm") is norm.rms_norm


@pytest.mark.gpu
def test_float_tensors_on_a_gpu_are_taken_and_others_are_not(monkeypatch: pytest.MonkeyPatch):
    taken: list[torch.Tensor] = []
    monkeypatch.setattr(triton, "operation", lambda module, name: lambda x, *args: taken.append(x))
    x = torch.ones(2, 4, device="cuda")
    kernel.rms_norm(x, torch.ones(4, device="cuda"), 1e-5)
    kernel.rms_norm(x.double(), torch.ones(4, device="cuda").double(), 1e-5)
    assert [t.dtype for t in taken] == [torch.float32]


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 5, linears.MAX_ROWS, linears.MAX_ROWS + 1, 100])
@pytest.mark.parametrize("size", [1024, linears.MAX_NORM_SIZE + 64])
def test_a_layer_is_the_same_for_few_rows_and_many(size: int, rows: int):
    generator = torch.Generator("cuda").manual_seed(0)
    x, residual = (torch.randn(rows, size, device="cuda", generator=generator).to(BF16) for _ in range(2))
    weight, norm_weight = torch.randn(96, size, device="cuda", generator=generator).to(BF16), x[0] + 1
    total = x + residual
    out, new_residual = linears.add_norm_linear(x.clone(), residual, norm_weight, 1e-6, weight, None, gate="silu")
    normed = torch_ops.rms_norm(total.float(), norm_weight.float(), 1e-6)
    expected = torch_ops.silu_and_mul(F.linear(normed, weight.float()))
    assert torch.equal(new_residual, total)
    assert float((out.float() - expected).norm() / expected.norm()) < 1e-2


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [3, 16, 32, 64, 100, 128])
@pytest.mark.parametrize(
    ("features", "size"), [(4096, 1024), (1024, 2048), (4096, 4096), (24576, 4096), (4096, 12288), (5120, 17408)]
)
def test_a_layer_is_the_same_by_every_tiling(features: int, size: int, rows: int):
    if gemm_tiling(rows, features, size) is None:
        pytest.skip("it is cuBLAS's")
    generator = torch.Generator("cuda").manual_seed(0)
    weight = torch.randn(features, size, device="cuda", generator=generator).to(BF16)
    x = torch.randn(rows, size, device="cuda", generator=generator).to(BF16)
    expected = F.linear(x.float(), weight.float())
    got = linears.linear(x, weight, None), linears.linear(x, weight, None, gate="silu")
    for out, wanted in zip(got, (expected, torch_ops.silu_and_mul(expected)), strict=True):
        assert float((out.float() - wanted).norm() / wanted.norm()) < 1e-2


@pytest.mark.gpu
def test_rows_that_lie_apart_are_multiplied_too():
    x, weight = torch.randn(8, 4096, device="cuda").to(BF16), torch.randn(1024, 2048, device="cuda").to(BF16)
    assert torch.equal(linears.linear(x[:, :2048], weight, None), F.linear(x[:, :2048], weight))
