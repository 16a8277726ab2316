"""Norms, the gate, rotation and the store as Triton kernels, against their reference in torch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from minisgl.kernel import rotation, torch_ops, triton
from minisgl.kernel.triton import activation, norm, rotary

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
TOKENS = [0, 1, 3, pytest.param(131, marks=pytest.mark.gpu), pytest.param(2048, marks=pytest.mark.gpu)]
SIZES = [1, 24, 100, pytest.param(1024, marks=pytest.mark.gpu), pytest.param(5120, marks=pytest.mark.gpu)]


def random(*shape: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def assert_close(got: torch.Tensor, expected: torch.Tensor, rounded: float = 1.0) -> None:
    """In float32 within 1e-5 of it; in bfloat16 within two roundings, for the reference rounds once more in places.

    rounded: how large what it rounds on the way may be.
    """
    assert got.dtype == expected.dtype
    rtol, atol = (1e-5, 1e-5) if got.dtype == torch.float32 else (2**-6, 2**-8 * rounded)
    torch.testing.assert_close(got, expected, rtol=rtol, atol=atol)


@DTYPES
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("tokens", TOKENS)
def test_rms_norm(tokens: int, size: int, dtype: torch.dtype):
    x, weight = random(tokens, size, dtype=dtype), random(size, dtype=dtype, seed=1)
    assert_close(norm.rms_norm(x, weight, 1e-5), torch_ops.rms_norm(x, weight, 1e-5))


def test_norms_take_weights_of_float32_beside_bfloat16():
    x, weight = random(3, 100, dtype=torch.bfloat16), random(100, dtype=torch.float32, seed=1)
    ours, theirs = (random(3, 100, dtype=torch.bfloat16, seed=2) for _ in range(2))
    assert_close(norm.rms_norm(x, weight, 1e-5), torch_ops.rms_norm(x, weight, 1e-5))
    expected = torch_ops.add_rms_norm(x, theirs, weight, 1e-5)
    assert_close(norm.add_rms_norm(x.clone(), ours, weight, 1e-5), expected)


@DTYPES
def test_rms_norm_of_heads_that_lie_among_others(dtype: torch.dtype):
    qkv, weight = random(5, 7, 24, dtype=dtype), random(24, dtype=dtype, seed=1)
    normed = norm.rms_norm(qkv[:, 2:5], weight, 1e-5)
    assert normed.is_contiguous()
    assert_close(normed, torch_ops.rms_norm(qkv[:, 2:5], weight, 1e-5))


@DTYPES
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("tokens", TOKENS)
def test_add_rms_norm_and_the_sum_that_it_leaves(tokens: int, size: int, dtype: torch.dtype):
    x, weight = random(tokens, size, dtype=dtype), random(size, dtype=dtype, seed=1)
    ours = random(tokens, size, dtype=dtype, seed=2)
    theirs = ours.clone()
    expected = torch_ops.add_rms_norm(x, theirs, weight, 1e-5)
    assert_close(norm.add_rms_norm(x.clone(), ours, weight, 1e-5), expected)
    assert_close(ours, theirs)


@DTYPES
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("tokens", TOKENS)
@pytest.mark.parametrize("name", ["silu_and_mul", "gelu_tanh_and_mul"])
@pytest.mark.filterwarnings("ignore:overflow")  # as it should, far below 0
def test_a_gate(name: str, tokens: int, size: int, dtype: torch.dtype):
    gate_up = random(tokens, 2 * size, dtype=dtype) * 5
    exact = getattr(torch_ops, name)(gate_up.double())
    assert_close(getattr(activation, name)(gate_up), exact.to(dtype))


@pytest.mark.filterwarnings("ignore:overflow")  # as it should, far below 0
def test_a_gate_of_extremes():
    gate = torch.tensor([[-1e30, -200.0, -20.0, 0.0, 20.0, 200.0, 1e30, float("nan")]], device=DEVICE)
    got = activation.gelu_tanh_and_mul(torch.cat([gate, torch.ones_like(gate)], dim=-1))
    torch.testing.assert_close(got, F.gelu(gate, approximate="tanh"), equal_nan=True)


@DTYPES
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("rows", TOKENS)
def test_soft_cap_of_rows_that_lie_apart(rows: int, size: int, dtype: torch.dtype):
    ours = random(rows, size + 3, dtype=dtype) * 100
    theirs = ours.clone()
    activation.soft_cap(ours[:, :size], 30.0)
    torch_ops.soft_cap(theirs[:, :size], 30.0)
    assert_close(ours, theirs, rounded=0.01)
    assert torch.equal(ours[:, size:], theirs[:, size:])


@DTYPES
@pytest.mark.parametrize("half", [1, 12, 64])
def test_rotary_turns(half: int, dtype: torch.dtype):
    inv_freq = 1e-4 ** (torch.arange(half, device=DEVICE) / half)
    for positions in (torch.tensor([0, 5, 40_000]), torch.tensor([131_071], dtype=torch.int32), torch.tensor([])):
        ours = rotary.rotary_turns(inv_freq, positions.int().to(DEVICE), dtype)
        for got, expected in zip(
            ours, torch_ops.rotary_turns(inv_freq, positions.int().to(DEVICE), dtype), strict=True
        ):
            assert got.shape == (len(positions), 1, 2 * half)
            torch.testing.assert_close(got, expected, rtol=0, atol=1e-6 if dtype == torch.float32 else 2**-8)


def turns(tokens: int, dim: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    inv_freq = 1e-4 ** (torch.arange(dim // 2, device=DEVICE) / (dim // 2))
    return torch_ops.rotary_turns(inv_freq, 7 * torch.arange(tokens, device=DEVICE), dtype)


@DTYPES
@pytest.mark.parametrize("heads", [1, 3, 11])
def test_apply_rotary_turns_the_first_heads_and_no_others(heads: int, dtype: torch.dtype):
    ours = random(3, 12, 20, dtype=dtype)
    theirs = ours.clone()
    rotary.apply_rotary(ours, *turns(3, 20, dtype), heads)
    torch_ops.apply_rotary(theirs, *turns(3, 20, dtype), heads)
    assert_close(ours, theirs, rounded=5.0)
    assert torch.equal(ours[:, heads:], theirs[:, heads:])


@DTYPES
@pytest.mark.parametrize("slots", [[4, 1, 2], [4, -1, 0], [-1, -1, -1], []])
def test_store_cache_writes_the_named_slots_only(slots: list[int], dtype: torch.dtype):
    qkv, indices = random(len(slots), 8, 6, dtype=dtype), torch.tensor(slots, dtype=torch.int32, device=DEVICE)
    k, v = qkv[:, 2:5], qkv[:, 5:]
    ours, theirs = ([random(5, 3, 6, dtype=dtype, seed=seed) for seed in (1, 2)] for _ in range(2))
    rotary.store_cache(*ours, indices, k, v)
    torch_ops.store_cache(*theirs, indices, k, v)
    assert torch.equal(torch.stack(ours), torch.stack(theirs))


@DTYPES
@pytest.mark.parametrize("norms", [None, "of x's dtype", "float32"])
@pytest.mark.parametrize(
    ("tokens", "heads", "dim"),
    [
        (0, (2, 1), 24),
        (3, (2, 1), 24),
        (3, (9, 3), 16),
        (2, (3, 3), 6),
        pytest.param(999, (16, 8), 128, marks=pytest.mark.gpu),
    ],
)
def test_rotate_and_store(
    tokens: int,
    heads: tuple[int, int],
    dim: int,
    norms: str | None,
    dtype: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(triton, "can_take", lambda x: False)  # one by one in torch is what one kernel is held to
    qkv = random(tokens, heads[0] + 2 * heads[1], dim, dtype=dtype)
    slots = torch.arange(tokens, dtype=torch.int32, device=DEVICE).flip(0) * 2 - 1  # the last token's is -1
    of_norms = torch.float32 if norms == "float32" else dtype
    weights = [random(dim, dtype=of_norms, seed=seed) for seed in (3, 4)] + [1e-5] if norms else []
    results = []
    for ops in (rotary, rotation):
        ours = qkv.clone()
        pool = [random(2 * tokens + 1, heads[1], dim, dtype=dtype, seed=seed) for seed in (1, 2)]
        ops.rotate_and_store(ours, *turns(tokens, dim, dtype), *heads, *pool, slots, *weights)
        results.append((ours, *pool))
    for got, expected in zip(*results, strict=True):
        assert_close(got, expected, rounded=5.0)
