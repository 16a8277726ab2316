"""Random numbers without state."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from minisgl.core.seeds import choice_seed, streams, uniform, uniforms

SEEDS = st.integers(-(2**63), 2**63 - 1)


@given(SEEDS, st.integers(0, 2**40))
def test_a_number_is_in_the_unit_interval_and_repeats(seed, position):
    assert 0.0 <= uniform(seed, position) < 1.0
    assert uniform(seed, position) == uniform(seed, position)


@given(st.lists(st.tuples(SEEDS, st.integers(0, 2**40))))
def test_many_numbers_at_once_are_those_of_each(pairs):
    seeds, positions = np.array(pairs, np.int64).reshape(-1, 2).T
    assert uniforms(streams(seeds), positions).tolist() == [uniform(*pair) for pair in pairs]


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
