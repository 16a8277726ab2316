"""Which of a batch's groups are read once for all of their rows."""

from __future__ import annotations

import numpy as np

from minisgl.attention.shared_prefix import GATHERED, MAX_LEVELS, GroupCost, SharedChooser, choose_shared
from minisgl.core import PrefixGroup

FREE = GroupCost(rows=1, tokens=0)


def group(rows: list[int], begin: int, end: int) -> PrefixGroup:
    return PrefixGroup(np.array(rows, np.int32), begin, end)


def chosen(
    groups: list[PrefixGroup], num_rows: int, cost: GroupCost, members: list[int] | None = None
) -> tuple[list[tuple[list[int], int, int]], list[int]]:
    """(rows, begin, end) of each range, and where each row's own part begins."""
    is_member = np.isin(np.arange(num_rows), np.arange(num_rows) if members is None else members)
    ranges, own_begins = choose_shared(groups, is_member, cost)
    return [(rows.tolist(), begin, end) for rows, begin, end in ranges], own_begins.tolist()


TREE = [group([0, 1, 2, 3], 0, 300), group([0, 1], 300, 900), group([2, 3], 300, 350)]


def test_no_groups_share_nothing():
    assert chosen([], 3, FREE) == ([], [0, 0, 0])


def test_every_level_is_read_where_it_costs_nothing():
    ranges = [([0, 1, 2, 3], 0, 300), ([0, 1], 300, 900), ([2, 3], 300, 350)]
    assert chosen(TREE, 5, FREE) == (ranges, [900, 900, 350, 350, 0])


def test_a_level_that_does_not_pay_is_the_rows_own():
    assert chosen(TREE, 4, GATHERED) == ([([0, 1, 2, 3], 0, 300), ([0, 1], 300, 900)], [900, 900, 300, 300])


def test_a_level_that_does_not_pay_by_itself_is_read_with_the_one_below():
    groups = [group([0, 1, 2], 0, 16), group([0, 1], 16, 600)]
    assert chosen(groups, 3, GATHERED) == ([([0, 1], 0, 600)], [600, 600, 0])


def test_a_group_must_have_more_rows_where_reading_alone_is_cheap():
    cost = GroupCost(rows=8, tokens=40)
    assert chosen([group(list(range(9)), 0, 40)], 9, cost)[0] == [(list(range(9)), 0, 40)]
    assert chosen([group(list(range(8)), 0, 40)], 8, cost)[0] == []
    assert chosen([group(list(range(9)), 0, 39)], 9, cost)[0] == []


def test_each_begun_tile_of_rows_costs_as_much():
    cost = GroupCost(rows=3, tokens=10, tile=4)
    assert chosen([group([0, 1, 2, 3], 0, 10)], 5, cost)[0] != []
    assert chosen([group([0, 1, 2, 3, 4], 0, 10)], 5, cost)[0] == []


def test_what_all_groups_cost_together_must_be_spared_by_all_of_them():
    groups = [group([0, 1], 0, 60), group([2, 3], 0, 40)]
    assert chosen(groups, 4, FREE._replace(batch=100))[1] == [60, 60, 40, 40]
    assert chosen(groups, 4, FREE._replace(batch=101)) == ([], [0] * 4)


def test_only_members_are_grouped_and_two_of_them_at_least():
    assert chosen(TREE, 4, FREE, members=[0, 2, 3]) == ([([0, 2, 3], 0, 300), ([2, 3], 300, 350)], [300, 0, 350, 350])


def test_so_many_levels_and_no_more():
    groups = [group(list(range(10 - level)), 10 * level, 10 * level + 10) for level in range(8)]
    ranges, own_begins = chosen(groups, 10, FREE)
    assert len(ranges) == MAX_LEVELS
    assert own_begins == [40] * 7 + [30, 20, 10]


def test_what_is_chosen_for_the_last_batch_is_taken_for_the_same_groups_and_rows_alone():
    chooser, groups = SharedChooser(FREE), tuple(TREE)
    first = chooser.choose(groups, 4, 4)
    assert chooser.choose(groups, 4, 4) is first
    assert chooser.choose(groups, 5, 4).own_begins.tolist() == [900, 900, 350, 350, 0]
    assert chooser.choose(groups, 4, 3).own_begins.tolist() == [900, 900, 300, 0]
    assert chooser.choose((), 4, 3).ranges == []
