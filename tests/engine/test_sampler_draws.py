"""Random numbers without state, and the inverse CDF."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from minisgl.engine.draws import block_sums, choice_seed, draw, uniform

SEEDS = st.integers(-(2**63), 2**63 - 1)


@given(SEEDS, st.integers(0, 2**40))
def test_a_number_is_in_the_unit_interval_and_repeats(seed, position):
    assert 0.0 <= uniform(seed, position) < 1.0
    assert uniform(seed, position) == uniform(seed, position)


def test_numbers_of_one_seed_and_of_one_position_are_uniform():
    """Chi-square over 100 cells of 10,000 fixed draws each; 149 is the 99.9 % point for 99 degrees of freedom."""
    for numbers in ([uniform(0, i) for i in range(10_000)], [uniform(i, 0) for i in range(10_000)]):
        counts, _ = np.histogram(numbers, bins=100, range=(0, 1))
        assert ((counts - 100) ** 2 / 100).sum() < 149


def test_neighbouring_seeds_and_positions_are_uncorrelated():
    table = np.array([[uniform(seed, position) for position in range(100)] for seed in range(100)])
    assert abs(np.corrcoef(table[:-1].ravel(), table[1:].ravel())[0, 1]) < 0.035
    assert abs(np.corrcoef(table[:, :-1].ravel(), table[:, 1:].ravel())[0, 1]) < 0.035


@given(SEEDS, st.integers(1, 127))
def test_a_choice_has_a_seed_of_its_own_in_int64(seed, index):
    assert choice_seed(seed, 0) == seed
    assert -(2**63) <= choice_seed(seed, index) < 2**63
    assert len({choice_seed(seed, i) for i in range(index + 1)}) == index + 1


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
