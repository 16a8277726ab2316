"""Bitwise invariance: promised where it holds, refused with the reason where it does not."""

from __future__ import annotations

import pytest
import torch

from minisgl.engine import determinism
from minisgl.engine.determinism import resolve_deterministic

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(params=[True, False])
def has_kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(determinism.cpu_ops, "in_use", lambda: request.param)
    return bool(request.param)


def test_it_is_the_default_on_a_cpu_with_kernels_alone(has_kernels: bool):
    assert resolve_deterministic(None, CPU, "cpu") == has_kernels
    assert not resolve_deterministic(None, CPU, "torch")
    assert not resolve_deterministic(None, GPU, "triton")


def test_it_can_be_turned_off_anywhere(has_kernels: bool):
    assert not resolve_deterministic(False, CPU, "cpu")
    assert not resolve_deterministic(False, GPU, "triton")


def test_it_is_refused_with_the_reason_where_it_cannot_be_promised(has_kernels: bool):
    with pytest.raises(ValueError, match="deterministic=True cannot be promised: kernels for cuda"):
        resolve_deterministic(True, GPU, "triton")
    if has_kernels:
        assert resolve_deterministic(True, CPU, "cpu")
        with pytest.raises(ValueError, match="attention_backend='torch' adds up in another order"):
            resolve_deterministic(True, CPU, "torch")
    else:
        with pytest.raises(ValueError, match="it takes the kernels in C"):
            resolve_deterministic(True, CPU, "cpu")
