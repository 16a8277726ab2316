from __future__ import annotations

import pytest

from minisgl.server.histogram import Histogram
from minisgl.server.metrics import TOKEN_GAP_S


def test_values_are_counted_up_to_each_bound_the_bound_included() -> None:
    histogram = Histogram((1, 2, 5))
    for value in (0.5, 1, 1.5, 5, 6):
        histogram.observe(value)
    assert histogram.cumulative() == [("1", 2), ("2", 3), ("5", 4), ("+Inf", 5)]
    assert (histogram.count, histogram.total) == (5, 14.0)


def test_a_value_may_count_several_times() -> None:
    histogram = Histogram((1,))
    histogram.observe(0.25, 4)
    assert histogram.cumulative() == [("1", 4), ("+Inf", 4)]
    assert histogram.total == 1.0


def test_quantiles_are_as_exact_as_parts_of_a_bucket() -> None:
    histogram = Histogram(TOKEN_GAP_S)
    values = [0.0002 * 1.01**i for i in range(900)]
    for value in values:
        histogram.observe(value)
    fractions = (0.1, 0.5, 0.9, 0.99)
    found = histogram.quantiles(fractions, [0] * len(histogram.counts()))
    assert found == pytest.approx([values[int(fraction * 900)] for fraction in fractions], rel=0.03)


def test_quantiles_are_of_what_came_after() -> None:
    histogram = Histogram((1, 2, 4))
    histogram.observe(1.5, 1000)
    before = histogram.counts()
    assert histogram.quantiles([0.5], before) is None
    histogram.observe(3, 10)
    assert histogram.quantiles([0.5], before) == pytest.approx([3], rel=0.1)
    histogram.observe(100, 1000)
    assert histogram.quantiles([0.5], before) == [4]
