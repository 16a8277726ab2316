from __future__ import annotations

from minisgl.server.histogram import Histogram


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
