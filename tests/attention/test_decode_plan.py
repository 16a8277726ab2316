"""Work items cover what every row reads, each position once, and no program has much more than another."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.table_groups import find_groups

from minisgl.attention.decode_plan import (
    OwnPlanner,
    OwnWork,
    TileWork,
    plan_extends,
    plan_own,
    plan_shared,
    split_evenly,
)
from minisgl.attention.shared_prefix import GroupCost, choose_shared
from minisgl.kernel.attention_work import ITEM_FIELDS, TILE_FIELDS


def own_items(work: OwnWork) -> list[list[int]]:
    return work.items.reshape(-1, ITEM_FIELDS).tolist()


def tile_items(work: TileWork) -> list[list[int]]:
    return work.items.reshape(-1, TILE_FIELDS).tolist()


@given(st.lists(st.integers(0, 300), min_size=1, max_size=12), st.integers(1, 20), st.sampled_from([1, 16, 64]))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_stretches_are_cut_into_columns_of_equal_cost(lengths: list[int], num_columns: int, grain: int):
    split = split_evenly(np.array(lengths), num_columns, grain)
    assert len(split.stretch) <= len(lengths) + num_columns
    for stretch, length in enumerate(lengths):
        items = slice(split.first[stretch], split.first[stretch + 1])
        assert set(split.stretch[items]) == {stretch}
        assert [0, *split.end[items]] == [*split.begin[items], length]
    assert (split.end > split.begin)[np.array(lengths)[split.stretch] > 0].all()
    costs = -(-(split.end - split.begin) // grain) + 1
    total = sum(-(-length // grain) + 1 for length in lengths)
    assert split.columns[0] == 0
    assert split.columns[-1] == len(costs)
    for begin, end in zip(split.columns, split.columns[1:], strict=False):
        # Besides rounding: a cut costs an item more, and one that falls into the cost of an item moves before it.
        assert costs[begin:end].sum() <= total // num_columns + 1 + 2


def test_one_long_row_is_dealt_out_to_all_columns():
    work = plan_own(np.array([7]), np.array([0]), np.array([1000]), 66, 64)
    assert len(own_items(work)) == 16
    assert np.diff(work.columns).max() == 1


def test_a_row_knows_its_items_unless_it_begins_later():
    work = plan_own(np.array([5, 3]), np.array([0, 64]), np.array([128, 192]), 4, 32)
    assert [(row, table, first, count) for row, table, _, _, first, count in own_items(work)] == [
        *[(0, 5, 0, 2)] * 2,
        *[(1, 3, 2, 0)] * 2,
    ]


FREE = GroupCost(rows=1, tokens=0)


@st.composite
def batches(draw) -> tuple[np.ndarray, np.ndarray]:
    """A page table whose rows agree on the pages before the first that differs, and how long each row is."""
    num_rows, width = draw(st.integers(1, 9)), 6
    choices = np.array(draw(st.lists(st.integers(0, 1), min_size=num_rows * width, max_size=num_rows * width)))
    choices = choices.reshape(num_rows, width)
    pages: dict[tuple[int, ...], int] = {}
    table = np.array([[pages.setdefault((*row[: i + 1],), len(pages)) for i in range(width)] for row in choices])
    return table, np.array(draw(st.lists(st.integers(1, 4 * width - 1), min_size=num_rows, max_size=num_rows)))


@given(batches(), st.integers(1, 9), st.integers(1, 5))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_every_row_reads_each_position_once(batch: tuple[np.ndarray, np.ndarray], num_columns: int, tile_rows: int):
    table, lens = batch
    groups = find_groups(table, (lens - 1) // 4, 4)
    table_idxs = np.arange(len(lens))[::-1].copy()
    ranges, begins = choose_shared(groups, np.ones(len(lens), np.bool_), FREE)
    own = plan_own(table_idxs, begins, lens, num_columns, 2)
    reads: Counter[tuple[int, int]] = Counter()
    partials: dict[int, int] = {}
    for index, (row, table_row, begin, end, _, count) in enumerate(own_items(own)):
        assert table_row == table_idxs[row]
        reads.update((row, position) for position in range(begin, end))
        if count == 0:
            partials[index] = row
    if ranges:
        work = plan_shared(own, ranges, table_idxs, tile_rows, num_columns, 2)
        for first, size, table_row, begin, end, partial, _ in tile_items(work):
            assert size <= tile_rows
            leader = int(np.flatnonzero(table_idxs == table_row)[0])
            for offset, row in enumerate(work.queries[first : first + size].tolist()):
                assert (table[row][begin // 4 : -(-end // 4)] == table[leader][begin // 4 : -(-end // 4)]).all()
                reads.update((row, position) for position in range(begin, end))
                assert partial + offset not in partials
                partials[partial + offset] = row
        assert work.parts is not None
        assert work.part_begins is not None
        joined = {row: set(work.parts[slice(*work.part_begins[row : row + 2])].tolist()) for row in range(len(lens))}
        assert joined == {row: {part for part, whose in partials.items() if whose == row} for row in range(len(lens))}
    assert reads == Counter({(row, position): 1 for row, length in enumerate(lens) for position in range(length)})


@pytest.mark.parametrize("window", [0, 1, 5, 19, 40])
@pytest.mark.parametrize("num_columns", [1, 3, 30])
def test_every_new_token_reads_each_position_up_to_its_own(num_columns: int, window: int):
    cached, device = np.array([0, 30, 7]), np.array([13, 31, 20])
    work = plan_extends(np.array([4, 9, 2]), cached, device, 4, num_columns, 2, window)
    own_positions = [*range(13), 30, *range(7, 20)]
    assert work.queries.tolist() == list(range(len(own_positions)))
    reads: Counter[tuple[int, int]] = Counter()
    for first, size, _, begin, end, _, position in tile_items(work):
        assert own_positions[first : first + size] == list(range(position, position + size))
        assert begin >= (position - window + 1 if window else 0), "no query sees this"
        for token in range(first, first + size):
            seen = seen_by(own_positions[token], window)
            reads.update((token, key) for key in range(max(begin, seen.start), min(end, seen.stop)))
    expected = [(token, key) for token, last in enumerate(own_positions) for key in seen_by(last, window)]
    assert reads == Counter(expected)


def seen_by(position: int, window: int) -> range:
    return range(max(0, position - window + 1) if window else 0, position + 1)


def test_many_tiles_of_prompts_begin_with_the_longest_and_are_not_cut():
    work = plan_extends(np.arange(3), np.array([0, 50, 8]), np.array([9, 60, 30]), 4, 2, 16)
    ends = [item[4] for item in tile_items(work)]
    assert ends == sorted(ends, reverse=True)
    assert work.parts is None


def test_rows_of_a_window_know_their_items_wherever_they_begin():
    work = plan_own(np.array([5, 3]), np.array([0, 64]), np.array([128, 192]), 4, 32, is_whole=True)
    assert [(row, begin, end, first, count) for row, _, begin, end, first, count in own_items(work)] == [
        *[(0, 0, 32, 0, 2), (0, 32, 128, 0, 2)],
        *[(1, 64, 96, 2, 2), (1, 96, 192, 2, 2)],
    ]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.integers(1, 9), st.sampled_from([1, 4, 7, 33]))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_a_planner_of_a_window_gives_what_a_new_plan_would(steps: list[int], num_columns: int, window: int):
    """Each row reads a token more at each step, and one less once it is longer than the window; now and then others."""
    planner = OwnPlanner(num_columns, 4, is_whole=True)
    table_idxs, ends = np.array([5, 3, 8]), np.array([30, 1, 25])
    for step in steps:
        ends = ends + 1
        if step == 0:
            table_idxs = np.roll(table_idxs, 1)
        elif step == 1:
            ends = ends + np.array([0, 3, 0])
        begins = np.maximum(ends - window, 0)
        expected = plan_own(table_idxs, begins, ends, num_columns, 4, is_whole=True)
        for got, wanted in zip(planner.plan(table_idxs, begins, ends), expected, strict=True):
            assert np.array_equal(got, wanted)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=30), st.integers(1, 9))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_a_planner_that_is_asked_again_gives_what_a_new_plan_would(steps: list[tuple[int, int]], num_columns: int):
    """Each row reads a token more at each step; now and then others read, or from another position on."""
    planner = OwnPlanner(num_columns, 4)
    table_idxs, begins, ends = np.array([5, 3, 8]), np.array([0, 4, 0]), np.array([30, 9, 1])
    given_out = []
    for event, value in steps:
        ends = ends + 1
        if event == 1:
            table_idxs = np.roll(table_idxs, 1)
        elif event == 2:
            begins = np.array([0, 0, 4 * (value % 2)]) if ends[2] > 4 else begins
        elif event == 3:
            ends = ends + np.array([value, 0, 0])
        expected = plan_own(table_idxs, begins, ends, num_columns, 4)
        work = planner.plan(table_idxs, begins, ends)
        given_out.append((work.items, expected.items))
        assert np.array_equal(work.columns, expected.columns)
    for items, expected_items in given_out:  # and later plans change none of them
        assert np.array_equal(items, expected_items)
