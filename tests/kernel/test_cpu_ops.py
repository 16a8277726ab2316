"""The operations in C++ against their reference in torch."""

from __future__ import annotations

import inspect
from types import ModuleType

import pytest
import torch
from support.needs import CPP_KERNELS
from support.pairs import in_pairs

from minisgl import kernel
from minisgl.kernel import cpu_ops, cpu_step, torch_ops

pytestmark = [
    CPP_KERNELS,
    pytest.mark.usefixtures("instruction_set"),
]

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
SIZES = [1, 7, 16, 24, 64, 100, 576]
GATES = ["silu_and_mul", "gelu_tanh_and_mul"]
TOKENS = [0, 1, 3, 150, 500]  # the last is enough work for two threads


def random(*shape: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def assert_close(got: torch.Tensor, expected: torch.Tensor) -> None:
    """Within 1e-6 of it in float32; in bfloat16 within two roundings, for the reference rounds once more in places."""
    assert got.dtype == expected.dtype
    torch.testing.assert_close(got, expected, rtol=1e-5 if got.dtype == torch.float32 else 2**-6, atol=2e-6)


@pytest.mark.parametrize("module", [cpu_ops, cpu_step])
def test_every_operation_takes_what_its_reference_takes(module: ModuleType):
    names = [name for name in kernel.__all__ if hasattr(module, name) and callable(getattr(torch_ops, name, None))]
    assert len(names) > 4
    for name in names:
        reference, in_cpp = (inspect.signature(getattr(ops, name)) for ops in (torch_ops, module))
        assert reference == in_cpp


@in_pairs(tokens=TOKENS, size=SIZES, dtype=[torch.float32, torch.bfloat16])
def test_rms_norm(tokens: int, size: int, dtype: torch.dtype):
    x, weight = random(tokens, size, dtype=dtype), random(size, dtype=dtype, seed=1)
    assert_close(cpu_ops.rms_norm(x, weight, 1e-5), torch_ops.rms_norm(x, weight, 1e-5))


def test_norms_take_weights_of_float32_beside_bfloat16():
    x, weight = random(3, 100, dtype=torch.bfloat16), random(100, dtype=torch.float32, seed=1)
    ours, theirs = (random(3, 100, dtype=torch.bfloat16, seed=2) for _ in range(2))
    exact = torch_ops.rms_norm(x.float(), weight, 1e-5).bfloat16()
    for ops in (cpu_ops, torch_ops):
        assert torch.equal(ops.rms_norm(x, weight, 1e-5), exact)
    assert_close(cpu_ops.add_rms_norm(x.clone(), ours, weight, 1e-5), torch_ops.add_rms_norm(x, theirs, weight, 1e-5))
    assert torch.equal(ours, theirs)


@DTYPES
def test_rms_norm_of_heads_that_lie_among_others(dtype: torch.dtype):
    qkv, weight = random(5, 7, 24, dtype=dtype), random(24, dtype=dtype, seed=1)
    normed = cpu_ops.rms_norm(qkv[:, 2:5], weight, 1e-5)
    assert normed.is_contiguous()
    assert_close(normed, torch_ops.rms_norm(qkv[:, 2:5], weight, 1e-5))


def test_rms_norm_of_zeros_is_zero():
    assert not cpu_ops.rms_norm(torch.zeros(2, 24), torch.ones(24), 1e-5).any()


@DTYPES
def test_what_is_no_number_or_immense_stays_in_its_row(dtype: torch.dtype):
    x, rows = random(70, 100, dtype=dtype), [3, 17, 40, 60]
    for row, value in zip(rows, (torch.nan, -torch.inf, torch.finfo(dtype).max, 1e-40), strict=True):
        x[row, 7::13] = value
    others = torch.ones(70, dtype=torch.bool).index_fill_(0, torch.tensor(rows), False)
    weight, residual = torch.ones(100, dtype=dtype), torch.zeros(70, 100, dtype=dtype)
    for operation in (
        lambda x, residual: cpu_ops.rms_norm(x, weight, 1e-5),
        lambda x, residual: cpu_ops.add_rms_norm(x.clone(), residual, weight, 1e-5),
        lambda x, residual: cpu_ops.silu_and_mul(x),
        lambda x, residual: cpu_ops.gelu_tanh_and_mul(x),
    ):
        got = operation(x, residual.clone())
        assert torch.equal(got[others], operation(x[others], residual[others]))
        assert not got[[3, 17]].isfinite().all(dim=1).any()
        assert got[60].isfinite().all()


@in_pairs(tokens=TOKENS, size=SIZES, dtype=[torch.float32, torch.bfloat16])
def test_add_rms_norm_and_the_sum_that_it_leaves(tokens: int, size: int, dtype: torch.dtype):
    x, weight = random(tokens, size, dtype=dtype), random(size, dtype=dtype, seed=1)
    ours = random(tokens, size, dtype=dtype, seed=2)
    theirs = ours.clone()
    expected = torch_ops.add_rms_norm(x, theirs, weight, 1e-5)
    assert_close(cpu_ops.add_rms_norm(x.clone(), ours, weight, 1e-5), expected)
    assert torch.equal(ours, theirs)


@in_pairs(name=GATES, tokens=TOKENS, size=SIZES, dtype=[torch.float32, torch.bfloat16])
def test_a_gate(name: str, tokens: int, size: int, dtype: torch.dtype):
    gate_up = random(tokens, 2 * size, dtype=dtype) * 5
    exact = getattr(torch_ops, name)(gate_up.double())
    assert_close(getattr(cpu_ops, name)(gate_up), exact.to(dtype))


@pytest.mark.parametrize("name", GATES)
def test_a_gate_of_extremes(name: str):
    gate = torch.tensor([[-3.4e38, -1e30, -200.0, -88.5, -20.0, 0.0, 20.0, 200.0, 1e30, 3.4e38, float("nan")]])
    expected = getattr(torch_ops, name)(torch.cat([gate, torch.ones_like(gate)], dim=-1))
    got = getattr(cpu_ops, name)(torch.cat([gate, torch.ones_like(gate)], dim=-1))
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-30, equal_nan=True)


@in_pairs(tokens=TOKENS, dim=[2, 16, 24, 64, 128], dtype=[torch.float32, torch.bfloat16])
def test_rotary_turns_the_first_heads_of_tokens_that_lie_apart(tokens: int, dim: int, dtype: torch.dtype):
    x = random(tokens, 9, dim, dtype=dtype)[:, :7]
    cos, sin = random(tokens, 1, dim, dtype=dtype, seed=1), random(tokens, 1, dim, dtype=dtype, seed=2)
    exact = x.double()
    torch_ops.apply_rotary(exact, cos.double(), sin.double(), 5)
    cpu_ops.apply_rotary(x, cos, sin, 5)
    torch.testing.assert_close(x.double(), exact, rtol=1e-6 if dtype == torch.float32 else 2**-8, atol=2e-6)
    assert torch.equal(x[:, 5:].double(), exact[:, 5:])


@DTYPES
@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
def test_store_cache_writes_the_named_slots_only(index_dtype: torch.dtype, dtype: torch.dtype):
    caches = torch.full((2, 50, 2, 24), float("nan"), dtype=dtype)
    kv = random(30, 6, 24, dtype=dtype)
    slots = torch.randperm(50, generator=torch.Generator().manual_seed(0))[:30]
    cpu_ops.store_cache(*caches, slots.to(index_dtype), kv[:, 1:3], kv[:, 4:])
    assert torch.equal(caches[0, slots], kv[:, 1:3])
    assert torch.equal(caches[1, slots], kv[:, 4:])
    assert caches.isnan().sum() == 2 * 20 * 2 * 24


def test_store_cache_stores_nothing_where_the_slot_is_less_than_0():
    caches, kv = torch.zeros(2, 20, 2, 24), random(3, 2, 24, dtype=torch.float32)
    cpu_ops.store_cache(*caches, torch.tensor([7, -1, 2], dtype=torch.int32), kv, kv)
    assert torch.equal(caches[0, [7, 2]], kv[[0, 2]])
    assert caches.any(dim=-1).any(dim=-1).sum() == 4


def test_store_cache_takes_every_fourth_of_a_list_of_slots():
    caches, kv = torch.zeros(2, 20, 2, 24), random(5, 2, 24, dtype=torch.float32)
    slots = torch.arange(20)[::4]
    cpu_ops.store_cache(*caches, slots, kv, kv)
    assert torch.equal(caches[0, slots], kv)


@DTYPES
@pytest.mark.parametrize("shape", [(0, 2, 24), (3, 0, 24), (0, 2, 1), (5, 1, 1), (5, 2, 1), (1, 1, 24)], ids=str)
def test_strides_of_what_is_empty_or_one_mean_nothing(shape: tuple[int, int, int], dtype: torch.dtype):
    """Torch gives such dimensions any stride, one of 0 too."""
    tokens, heads, dim = shape
    slots, weight = torch.randperm(9, generator=torch.Generator().manual_seed(0))[:tokens], random(dim, dtype=dtype)
    dense = random(*shape, dtype=dtype)
    strides = [7 if n <= 1 else stride for n, stride in zip(shape, (heads * dim, dim, 1), strict=True)]
    kv = torch.zeros(2000, dtype=dtype).as_strided(shape, strides).copy_(dense)
    caches = torch.zeros(2, 9, heads, dim, dtype=dtype)
    cpu_ops.store_cache(*caches, slots, kv, kv)
    for cache in caches:
        assert torch.equal(cache[slots], dense)
    assert torch.equal(cpu_ops.rms_norm(kv, weight, 1e-5), cpu_ops.rms_norm(dense, weight, 1e-5))


def shifted(x: torch.Tensor) -> torch.Tensor:
    """The same numbers one element off any boundary, with NaN around them."""
    return torch.full((x.numel() + 2,), torch.nan, dtype=x.dtype)[1:-1].view(x.shape).copy_(x)


@DTYPES
@pytest.mark.parametrize("dim", [2, 24, 100])
@pytest.mark.parametrize("tokens", [1, 7])
def test_where_numbers_lie_in_memory_changes_nothing(tokens: int, dim: int, dtype: torch.dtype):
    qkv, gate_up = random(tokens, 4, dim, dtype=dtype), random(tokens, 2 * dim, dtype=dtype)
    weight, turns = random(dim, dtype=dtype, seed=1), random(2, tokens, 1, dim, dtype=dtype, seed=2)
    slots = torch.arange(tokens, dtype=torch.int32)
    results: list[list[torch.Tensor]] = []
    for place in (torch.clone, shifted):
        heads, caches = place(qkv), [place(torch.zeros(9, 1, dim, dtype=dtype)) for _ in range(4)]
        x, residual = place(gate_up[:, :dim].contiguous()), place(gate_up[:, dim:].contiguous())
        normed = [cpu_ops.rms_norm(x, place(weight), 1e-5), cpu_ops.add_rms_norm(x, residual, place(weight), 1e-5)]
        cos, sin = (place(turn) for turn in turns)
        cpu_ops.store_cache(caches[0], caches[1], slots, heads[:, 2:3], heads[:, 3:])
        cpu_ops.apply_rotary(heads, cos, sin, 3)
        cpu_ops.rotate_and_store(heads, cos, sin, 2, 1, caches[2], caches[3], slots, place(weight), place(weight), 1e-5)
        gates = [cpu_ops.silu_and_mul(place(gate_up)), cpu_ops.gelu_tanh_and_mul(place(gate_up))]
        results.append([heads, *caches, residual, *normed, *gates])
        around = [x, residual, heads, *caches] if place is shifted else []
        assert all(t.untyped_storage().nbytes() == (t.numel() + 2) * t.itemsize for t in around)
        assert all(torch.empty(0, dtype=dtype).set_(t.untyped_storage())[[0, -1]].isnan().all() for t in around)
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("shape", [(24,), (2, 2, 2, 24)], ids=str)
def test_rms_norm_refuses_what_it_would_read_past(shape: tuple[int, ...]):
    with pytest.raises(AssertionError):
        cpu_ops.rms_norm(torch.ones(shape), torch.ones(24), 1e-5)
    with pytest.raises(AssertionError):
        cpu_ops.rms_norm(torch.ones(2, 24), torch.ones(23), 1e-5)


def test_not_a_number_stays_one_in_bfloat16():
    x = torch.full((1, 24), float("nan"), dtype=torch.bfloat16)
    assert cpu_ops.rms_norm(x, torch.ones(24, dtype=torch.bfloat16), 1e-5).isnan().all()


def test_operations_go_to_cpp_only_with_what_it_can_take():
    assert kernel.has_cpp(torch.zeros(1, dtype=torch.bfloat16))
    assert not kernel.has_cpp(torch.zeros(1, dtype=torch.float16))
    x = random(2, 8, dtype=torch.float16)
    assert torch.equal(kernel.silu_and_mul(x), torch_ops.silu_and_mul(x))
