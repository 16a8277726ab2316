"""The gated activation."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from minisgl.layers import silu_and_mul


def test_the_first_half_gates_the_second_and_both_stay_as_they_were():
    gate_up = torch.randn(3, 10, generator=torch.Generator().manual_seed(0))
    before = gate_up.clone()
    out = silu_and_mul(gate_up)
    assert out.is_contiguous()
    torch.testing.assert_close(out, F.silu(before[:, :5]) * before[:, 5:])
    assert torch.equal(gate_up, before)
