"""A norm and the linear layer behind it, in one call and in two."""

from __future__ import annotations

import torch

from minisgl.kernel import cpu_ops
from minisgl.kernel.cpu_linear import PackedLinear


def assert_one_call_is_two(
    layer: PackedLinear, x: torch.Tensor, residual: torch.Tensor, norm_weight: torch.Tensor
) -> None:
    """To the bit, with a residual and without; x and residual are given up."""
    summed = residual.clone()
    expected = layer.multiply(cpu_ops.add_rms_norm(x.clone(), summed, norm_weight, 1e-5))
    out, total = layer.add_norm_multiply(x.clone(), residual, norm_weight, 1e-5)
    assert torch.equal(out, expected)
    assert torch.equal(total, summed)
    first, same_x = layer.add_norm_multiply(x, None, norm_weight, 1e-5)
    assert torch.equal(first, layer.multiply(cpu_ops.rms_norm(x, norm_weight, 1e-5)))
    assert same_x is x
