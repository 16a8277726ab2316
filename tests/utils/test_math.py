import pytest

from minisgl.utils.math import align_down, align_up, div_ceil


@pytest.mark.parametrize(("a", "b", "expected"), [(0, 4, 0), (1, 4, 1), (4, 4, 1), (5, 4, 2), (7, 1, 7)])
def test_div_ceil_rounds_up(a: int, b: int, expected: int):
    assert div_ceil(a, b) == expected


@pytest.mark.parametrize(("a", "down", "up"), [(0, 0, 0), (1, 0, 16), (15, 0, 16), (16, 16, 16), (17, 16, 32)])
def test_align_goes_to_the_multiples_next_to_a_number(a: int, down: int, up: int):
    assert (align_down(a, 16), align_up(a, 16)) == (down, up)


def test_div_ceil_is_exact_where_floats_are_not():
    assert div_ceil(2**60 + 1, 2) == 2**59 + 1
