"""The inverse CDF."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from minisgl.core.seeds import uniform
from minisgl.engine.draws import block_sums, draw


def test_draws_follow_the_weights():
    """Chi-square over 10,000 fixed seeds; 103 is the 99.9 % point for 62 degrees of freedom."""
    weights = torch.linspace(0, 3, 64)
    tokens = draw(weights.repeat(10_000, 1), [uniform(seed, 3) for seed in range(10_000)])
    counts, expected = np.bincount(tokens, minlength=64), 10_000 * (weights / weights.sum()).numpy()
    assert counts[0] == 0
    assert ((counts[1:] - expected[1:]) ** 2 / expected[1:]).sum() < 103


def test_a_draw_is_the_inverse_cdf_in_order_of_id():
    weights = torch.zeros(5, 1000)
    weights[:, [3, 255, 256, 999]] = torch.tensor([1.0, 1.0, 2.0, 4.0])
    assert draw(weights, [0.0, 0.124, 0.126, 0.251, 0.501]).tolist() == [3, 3, 255, 256, 999]


@given(
    st.integers(1, 600),
    st.sampled_from([0.0, 2.0**-53, 0.5, 1 - 2.0**-24, 1 - 2.0**-53]),
    st.randoms(use_true_random=False),
)
def test_a_token_without_weight_is_never_drawn(size, number, random):
    weights = torch.tensor([[random.choice([0.0, 0.0, 1e-38, 1e-7, 0.3, 1.0]) for _ in range(size)]])
    weights[0, random.randrange(size)] = 1.0
    assert weights[0, draw(weights, [number])] > 0


def test_a_row_of_nan_or_zeros_gives_a_token_in_range():
    weights = torch.ones(3, 300)
    weights[0], weights[1] = torch.nan, 0
    tokens = draw(weights, [0.5, 0.5, 0.5]).tolist()
    assert tokens[2] == 150
    assert all(0 <= token < 300 for token in tokens)


@pytest.mark.parametrize("size", [1, 255, 256, 257, 151_936])
def test_block_sums_cover_every_weight_and_are_the_same_for_one_row_as_for_many(size):
    weights = torch.rand(20, size, generator=torch.Generator().manual_seed(0))
    sums = block_sums(weights)
    assert torch.allclose(sums.sum(-1), weights.sum(-1), rtol=1e-5)
    assert all(torch.equal(block_sums(weights[row : row + 1])[0], sums[row]) for row in range(20))
