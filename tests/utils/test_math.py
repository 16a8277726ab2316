import pytest

from minisgl.utils.math import align_down, div_ceil, num_bytes


@pytest.mark.parametrize(("a", "b", "expected"), [(0, 4, 0), (1, 4, 1), (4, 4, 1), (5, 4, 2), (7, 1, 7)])
def test_div_ceil_rounds_up(a: int, b: int, expected: int):
    assert div_ceil(a, b) == expected


@pytest.mark.parametrize(("a", "expected"), [(0, 0), (1, 0), (15, 0), (16, 16), (17, 16)])
def test_align_down_goes_to_the_multiple_below(a: int, expected: int):
    assert align_down(a, 16) == expected


def test_div_ceil_is_exact_where_floats_are_not():
    assert div_ceil(2**60 + 1, 2) == 2**59 + 1


def test_bytes_of_a_text_are_those_of_utf_8():
    assert [num_bytes(text) for text in ("", "ab", "é", "世", "🦀", "\ud800")] == [0, 2, 2, 3, 4, 3]
