"""Which rows of a page table are found to share a prefix."""

from __future__ import annotations

import numpy as np

from minisgl.attention.shared_prefix import GroupCost, find_shared_prefixes


def groups_of(rows: list[list[int]], page_size: int = 256) -> list[tuple[list[int], int]]:
    """Rows of page numbers -> (row numbers, common pages) a group; 256 slots a page, so that two pages pay."""
    table = np.full((len(rows), max(map(len, rows), default=0) + 1), -1, np.int32)
    for i, row in enumerate(rows):
        table[i, : len(row)] = row
    lengths = np.array([len(row) for row in rows])
    return [(group.rows.tolist(), group.num_pages) for group in find_shared_prefixes(table, lengths, page_size)]


def test_rows_with_different_first_pages_share_nothing():
    assert groups_of([[1, 2, 3], [4, 2, 3]]) == []


def test_rows_without_pages_share_nothing():
    assert groups_of([[], [1, 2, 3], []]) == []


def test_a_group_shares_what_all_its_rows_have():
    assert groups_of([[1, 2, 3, 4], [9], [1, 2, 3], [1, 2, 3, 7]]) == [([0, 2, 3], 3)]


def test_two_groups_in_one_batch():
    assert groups_of([[1, 2, 3], [7, 8, 9], [1, 2, 4], [7, 8, 5]]) == [([0, 2], 2), ([1, 3], 2)]


def test_a_level_further_down_is_taken_where_it_spares_more():
    long, other = [1, *range(10, 20)], [1, *range(30, 40)]
    assert groups_of([long, other, long, other]) == [([0, 2], 11), ([1, 3], 11)]


def test_the_first_level_is_taken_where_it_spares_more():
    head = list(range(1, 9))
    assert groups_of([[*head, 10, 11], [*head, 20], [*head, 10, 12], [*head, 21]]) == [([0, 1, 2, 3], 8)]


def test_too_little_to_spare_is_no_group():
    assert groups_of([[1, 2], [1, 3]], page_size=511) == []
    assert groups_of([[1, 2], [1, 3]], page_size=512) == [([0, 1], 1)]


def test_levels_that_are_dropped_do_not_count_against_one_that_pays():
    """Three pairs that spare 2 pages each would together beat the 5 of the level above, but are too small to keep."""
    rows = [[1, 10], [1, 10], [1, 20], [1, 20], [1, 30], [1, 30]]
    assert groups_of(rows, page_size=128) == [([0, 1, 2, 3, 4, 5], 1)]


def test_a_group_must_have_more_rows_where_reading_alone_is_cheap():
    table = np.arange(41)[None].repeat(9, axis=0)
    num_pages = np.full(9, 40)
    cost = GroupCost(rows=8, tokens=40)
    assert [group.num_pages for group in find_shared_prefixes(table, num_pages, 1, cost)] == [40]
    assert find_shared_prefixes(table[:8], num_pages[:8], 1, cost) == []
    assert find_shared_prefixes(table, num_pages, 1, cost._replace(tokens=41)) == []


def test_a_thousand_rows_that_begin_each_other_are_no_deep_recursion():
    rows = [list(range(length)) for length in range(2, 1502)]
    (group,) = groups_of(rows)
    assert group == (list(range(748, 1500)), 750)  # 751 x 750 pages are spared, the most there is
