"""What becomes of a projection before attention, in one call: to the bit what the operations do one by one."""

from __future__ import annotations

import pytest
import torch
from support.needs import CPP_KERNELS
from support.pairs import in_pairs

from minisgl.kernel import cpu_ops, torch_ops
from minisgl.kernel.rotation import rotate_and_store

pytestmark = [
    CPP_KERNELS,
    pytest.mark.usefixtures("instruction_set"),
]

QUERIES, KEYS, EPS = 4, 2, 1e-5
Weights = tuple[torch.Tensor, torch.Tensor]


def random(*shape: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


class Case:
    """Tokens, their turns and weights of norms, and a pool in which nothing is stored yet."""

    def __init__(self, tokens: int, dim: int, dtype: torch.dtype, weight_dtype: torch.dtype | None = None) -> None:
        self.qkv = random(tokens, QUERIES + 2 * KEYS, dim, dtype=dtype)
        self.cos, self.sin = (random(tokens, 1, dim, dtype=dtype, seed=seed) for seed in (1, 2))
        self.pool = torch.full((2, tokens + 5, KEYS, dim), 7.0, dtype=dtype)
        self.slots = torch.randperm(tokens + 5, generator=torch.Generator().manual_seed(3))[:tokens].int()
        self.slots[::7] = -1
        self.weights: Weights | None = None
        if weight_dtype is not None:
            q_weight, k_weight = (random(dim, dtype=weight_dtype, seed=seed) for seed in (4, 5))
            self.weights = q_weight, k_weight

    def run(self) -> Case:
        norm = (*self.weights, EPS) if self.weights else ()
        rotate_and_store(self.qkv, self.cos, self.sin, QUERIES, KEYS, *self.pool, self.slots, *norm)
        return self

    def run_one_by_one(self, ops=cpu_ops) -> Case:
        q, k, v = self.qkv.split_with_sizes([QUERIES, KEYS, KEYS], dim=1)
        if self.weights:
            for heads, weight in zip((q, k), self.weights, strict=True):
                heads.copy_(ops.rms_norm(heads, weight, EPS))
        ops.apply_rotary(self.qkv, self.cos, self.sin, QUERIES + KEYS)
        ops.store_cache(*self.pool, self.slots, k, v)
        return self


@in_pairs(tokens=[0, 1, 3, 300], dim=[2, 24, 64, 128], dtype=[torch.float32, torch.bfloat16], normed=[False, True])
def test_it_is_to_the_bit_what_the_kernels_do_one_by_one(tokens: int, dim: int, dtype: torch.dtype, normed: bool):
    arguments = tokens, dim, dtype, dtype if normed else None
    ours, theirs = Case(*arguments).run(), Case(*arguments).run_one_by_one()
    assert torch.equal(ours.qkv, theirs.qkv)
    assert torch.equal(ours.pool, theirs.pool)


@pytest.mark.parametrize("weight_dtype", [torch.float32, torch.bfloat16, None], ids=str)
def test_it_is_within_roundings_what_torch_does(weight_dtype: torch.dtype | None):
    arguments = 50, 64, torch.bfloat16, weight_dtype
    ours, theirs = Case(*arguments).run(), Case(*arguments).run_one_by_one(torch_ops)
    torch.testing.assert_close(ours.qkv, theirs.qkv, rtol=2**-6, atol=2**-6)
    torch.testing.assert_close(ours.pool, theirs.pool, rtol=2**-6, atol=2**-6)


@pytest.mark.parametrize("name", ["cos", "slots", "pool"])
def test_what_it_would_read_past_is_refused(name: str):
    case = Case(5, 24, torch.float32)
    setattr(case, name, getattr(case, name)[..., :-1])
    with pytest.raises(AssertionError):
        case.run()


def test_its_time_is_on_account():
    before = cpu_ops.seconds_taken()
    Case(300, 64, torch.float32).run()
    assert before < cpu_ops.seconds_taken() < before + 60
