"""The operations in C++ against their reference in torch, and decodes against the textbook in float64."""

from __future__ import annotations

import inspect
from types import ModuleType

import pytest
import torch

from minisgl import kernel
from minisgl.kernel import cpu_ops, torch_ops

pytestmark = [
    pytest.mark.skipif(not cpu_ops.in_use(), reason="no C++ kernels here, or MINISGL_KERNELS=torch"),
    pytest.mark.usefixtures("instruction_set"),
]

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
SIZES = pytest.mark.parametrize("size", [1, 7, 16, 24, 64, 100, 576])
GATES = pytest.mark.parametrize("name", ["silu_and_mul", "gelu_tanh_and_mul"])
TOKENS = pytest.mark.parametrize("tokens", [0, 1, 3, 150, 500])  # the last is enough work for two threads


def random(*shape: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def assert_close(got: torch.Tensor, expected: torch.Tensor) -> None:
    """Within 1e-6 of it in float32; in bfloat16 within two roundings, for the reference rounds once more in places."""
    assert got.dtype == expected.dtype
    torch.testing.assert_close(got, expected, rtol=1e-5 if got.dtype == torch.float32 else 2**-6, atol=2e-6)


@pytest.mark.parametrize(
    "name", [name for name in kernel.__all__ if hasattr(torch_ops, name) and hasattr(cpu_ops, name)]
)
def test_every_operation_takes_what_its_reference_takes(name: str):
    reference, in_cpp = (inspect.signature(getattr(ops, name)) for ops in (torch_ops, cpu_ops))
    assert reference == in_cpp


@DTYPES
@SIZES
@TOKENS
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
@SIZES
@TOKENS
def test_add_rms_norm_and_the_sum_that_it_leaves(tokens: int, size: int, dtype: torch.dtype):
    x, weight = random(tokens, size, dtype=dtype), random(size, dtype=dtype, seed=1)
    ours = random(tokens, size, dtype=dtype, seed=2)
    theirs = ours.clone()
    expected = torch_ops.add_rms_norm(x, theirs, weight, 1e-5)
    assert_close(cpu_ops.add_rms_norm(x.clone(), ours, weight, 1e-5), expected)
    assert torch.equal(ours, theirs)


@DTYPES
@SIZES
@TOKENS
@GATES
def test_a_gate(name: str, tokens: int, size: int, dtype: torch.dtype):
    gate_up = random(tokens, 2 * size, dtype=dtype) * 5
    exact = getattr(torch_ops, name)(gate_up.double())
    assert_close(getattr(cpu_ops, name)(gate_up), exact.to(dtype))


@GATES
def test_a_gate_of_extremes(name: str):
    gate = torch.tensor([[-1e30, -200.0, -88.5, -20.0, 0.0, 20.0, 200.0, 1e30, float("nan")]])
    expected = getattr(torch_ops, name)(torch.cat([gate, torch.ones_like(gate)], dim=-1))
    got = getattr(cpu_ops, name)(torch.cat([gate, torch.ones_like(gate)], dim=-1))
    torch.testing.assert_close(got[:, 1:], expected[:, 1:], rtol=1e-5, atol=1e-30, equal_nan=True)
    assert abs(got[0, 0]) < 1e-6


@DTYPES
@pytest.mark.parametrize("dim", [2, 16, 24, 64, 128])
@TOKENS
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


@pytest.mark.parametrize("shape", [(24,), (2, 2, 2, 24)], ids=str)
def test_rms_norm_refuses_what_it_would_read_past(shape: tuple[int, ...]):
    with pytest.raises(AssertionError):
        cpu_ops.rms_norm(torch.ones(shape), torch.ones(24), 1e-5)
    with pytest.raises(AssertionError):
        cpu_ops.rms_norm(torch.ones(2, 24), torch.ones(23), 1e-5)


def test_not_a_number_stays_one_in_bfloat16():
    x = torch.full((1, 24), float("nan"), dtype=torch.bfloat16)
    assert cpu_ops.rms_norm(x, torch.ones(24, dtype=torch.bfloat16), 1e-5).isnan().all()


class Decodes:
    """Rows of these lengths in scattered slots of a pool that holds NaN everywhere else; q lies among k and v."""

    def __init__(
        self,
        lengths: list[int],
        group: int,
        head_dim: int,
        dtype: torch.dtype,
        kv_heads: int = 2,
        softcap: float = 0.0,
    ) -> None:
        self.lengths, num_slots = lengths, sum(lengths) + 40
        self.scale, self.softcap = 0.9 * head_dim**-0.5, softcap
        order = torch.randperm(num_slots, generator=torch.Generator().manual_seed(3)).int()
        self.slots = order[: sum(lengths)]
        self.indptr = torch.tensor([0, *lengths]).cumsum(0).int()
        self.caches = random(2, num_slots, kv_heads, head_dim, dtype=dtype)
        self.caches[:, order[sum(lengths) :].long()] = float("nan")
        qkv = random(len(lengths), (group + 2) * kv_heads, head_dim, dtype=dtype, seed=1)
        self.q = qkv[:, : group * kv_heads] * 3

    def run(self, ops: ModuleType = cpu_ops) -> tuple[torch.Tensor, torch.Tensor]:
        return self._attend(ops, self.q, self.slots, self.indptr)

    def alone(self, row: int, begin: int = 0, end: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """One row's tokens [begin, end)."""
        slots = self.slots[self.indptr[row] : self.indptr[row + 1]][begin:end]
        return self._attend(cpu_ops, self.q[row : row + 1], slots, torch.tensor([0, len(slots)]).int())

    def _attend(
        self, ops: ModuleType, q: torch.Tensor, slots: torch.Tensor, indptr: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """o [B, Hq, D], lse [B, Hq]."""
        rows, heads, dim = q.shape
        o, lse = torch.empty(rows, heads * dim, dtype=q.dtype), torch.empty(rows, heads)
        ops.decode_attention(q, *self.caches, slots, indptr, o, lse, self.scale, self.softcap)
        return o.view(q.shape), lse

    def by_the_book(self) -> tuple[torch.Tensor, torch.Tensor]:
        """In float64."""
        states = []
        for row in range(len(self.lengths)):
            slots = self.slots[self.indptr[row] : self.indptr[row + 1]].long()
            k, v = (cache[slots].double().transpose(0, 1) for cache in self.caches)
            q = self.q[row].double().view(len(k), -1, k.shape[-1])
            scores = q @ k.transpose(1, 2) * self.scale
            if self.softcap:
                scores = self.softcap * torch.tanh(scores / self.softcap)
            states.append(((scores.softmax(-1) @ v).flatten(0, 1), scores.logsumexp(-1).flatten()))
        o, lse = zip(*states, strict=True)
        return torch.stack(o), torch.stack(lse)


LENGTHS = [1, 2, 15, 16, 17, 127, 128, 129, 500, 1100]


def assert_by_the_book(case: Decodes) -> None:
    (o, lse), (exact_o, exact_lse) = case.run(), case.by_the_book()
    assert o.dtype == case.q.dtype
    assert lse.dtype == torch.float32
    # Scores that are capped are within 2e-7 of the cap. bfloat16: half a unit in the last place, of values up to 4.
    tolerance = 2e-6 + 2e-7 * case.softcap if o.dtype == torch.float32 else 2**-8
    torch.testing.assert_close(o.double(), exact_o, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(lse.double(), exact_lse, rtol=0, atol=1e-5)


@DTYPES
@pytest.mark.parametrize("group", [1, 3, 4, 8])
@pytest.mark.parametrize("head_dim", [1, 16, 24, 64, 80, 128])
def test_decodes_are_as_by_the_book(head_dim: int, group: int, dtype: torch.dtype):
    assert_by_the_book(Decodes(LENGTHS, group, head_dim, dtype))


@DTYPES
@pytest.mark.parametrize("group", [2, 5, 6, 7, 71])
def test_decodes_of_any_group(group: int, dtype: torch.dtype):
    assert_by_the_book(Decodes([3, 150], group, 32, dtype, kv_heads=1))


@DTYPES
@pytest.mark.parametrize("softcap", [0.5, 3, 50])
def test_decodes_with_a_soft_cap_are_as_by_the_book(softcap: float, dtype: torch.dtype):
    assert_by_the_book(Decodes(LENGTHS, 3, 64, dtype, softcap=softcap))


def test_a_soft_cap_holds_where_products_are_huge():
    case = Decodes([1, 20, 300], 3, 64, torch.float32, softcap=5)
    case.q *= 1e6
    assert_by_the_book(case)


@pytest.mark.parametrize("softcap", [0, 3])
def test_the_reference_of_decodes_is_by_the_book(softcap: float):
    case = Decodes([1, 5, 300], 3, 24, torch.float32, softcap=softcap)
    o, lse = case.run(torch_ops)
    exact_o, exact_lse = case.by_the_book()
    torch.testing.assert_close(o.double(), exact_o, rtol=0, atol=1e-5)
    torch.testing.assert_close(lse.double(), exact_lse, rtol=0, atol=1e-5)


@DTYPES
def test_scores_too_large_for_exp(dtype: torch.dtype):
    case = Decodes([200, 3], 3, 64, dtype)
    case.q *= 1000
    o, lse = case.run()
    assert o.isfinite().all()
    torch.testing.assert_close(lse.double(), case.by_the_book()[1], rtol=1e-5, atol=0)


@DTYPES
def test_a_row_gets_bit_for_bit_the_same_alone_and_in_company_on_one_thread_and_on_two(dtype: torch.dtype):
    case = Decodes([1100, 64, 1, 300, 700, 129], 3, 64, dtype)
    before = torch.get_num_threads()
    results = []
    for num_threads in (1, 2):
        torch.set_num_threads(num_threads)
        results.append(case.run())
        results.append(tuple(torch.cat(x) for x in zip(*(case.alone(row) for row in range(6)), strict=True)))
    torch.set_num_threads(before)
    for o, lse in results[1:]:
        assert torch.equal(o, results[0][0])
        assert torch.equal(lse, results[0][1])


def test_part_of_the_keys_merges_with_the_rest():
    case = Decodes([700], 3, 64, torch.float32)
    merged_states = torch_ops.merge_states(*case.alone(0, end=300), *case.alone(0, begin=300))
    for merged, expected in zip(merged_states, case.run(), strict=True):
        torch.testing.assert_close(merged, expected, rtol=0, atol=1e-6)


def test_operations_go_to_cpp_only_with_what_it_can_take():
    assert kernel.has_cpp(torch.zeros(1, dtype=torch.bfloat16))
    assert not kernel.has_cpp(torch.zeros(1, dtype=torch.float16))
    x = random(2, 8, dtype=torch.float16)
    assert torch.equal(kernel.silu_and_mul(x), torch_ops.silu_and_mul(x))
