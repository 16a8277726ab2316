from __future__ import annotations

import pytest
from support.traces import TAU_AIRLINE, make_request, make_trace

from minisgl.simulate.replay import replay
from minisgl.simulate.trace import TracedRequest, read_trace
from minisgl.simulate.workload import default_page_size, make_workload


def test_a_block_is_a_unit_where_the_page_is_a_block():
    (item,) = make_workload(make_trace([make_request([7, 8], [9], block_size=64)], 64), 64).items
    assert item.ids().tolist() == [7, 8, 9]
    assert (item.num_prompt, item.num_known, item.num_kept) == (2, 3, 3)


def test_a_page_of_several_blocks_is_named_by_its_last_one_and_a_rest_is_dropped():
    (item,) = make_workload(make_trace([make_request([1, 2, 3], [4, 5])]), 2).items
    assert item.ids().tolist() == [2, 4]
    assert (item.num_prompt, item.num_known) == (1, 2)


def test_a_block_of_several_pages_is_cut():
    (item,) = make_workload(make_trace([make_request([5, 0], block_size=64)], 64), 32).items
    assert item.ids().tolist() == [10, 11, 0, 1]


def test_expanded_every_token_is_a_unit_of_its_own():
    workload = make_workload(make_trace([make_request([3], [1], block_size=4)], 4), 4, expand=True)
    assert workload.items[0].ids().tolist() == [12, 13, 14, 15, 4, 5, 6, 7]
    assert (workload.unit, workload.units_per_page, workload.longest) == (1, 4, 2)


def test_a_prompt_shorter_than_a_page_is_a_page_that_nobody_shares():
    one, two = make_workload(make_trace([make_request([1, 2]), make_request([1, 3])]), 16).items
    assert (one.ids().tolist(), two.ids().tolist()) == ([2], [3])


def test_an_output_that_the_trace_does_not_tell_takes_pages_of_its_own():
    requests = [TracedRequest(0, None, 64, 200, ((4, 1),)), TracedRequest(0, None, 64, 64, ((4, 1),))]
    one, two = make_workload(make_trace(requests, 64), 64, fill=True).items
    assert (one.ids().tolist(), two.ids().tolist()) == ([4, 5, 6, 7], [4, 8])


@pytest.mark.parametrize(("block_size", "page_size"), [(1, 16), (16, 16), (64, 64), (512, 64), (96, 48)])
def test_the_default_page_is_a_block_or_a_part_of_it(block_size: int, page_size: int):
    assert default_page_size(block_size) == page_size


def test_a_page_that_does_not_fit_the_blocks_is_refused():
    with pytest.raises(ValueError, match="page_size=48 neither divides the trace's block of 64 tokens"):
        make_workload(make_trace([make_request([1], block_size=64)], 64), 48)


def test_more_units_than_ids_are_refused():
    with pytest.raises(ValueError, match="take larger pages"):
        make_workload(make_trace([make_request([1 << 27], block_size=64)], 64), 64, expand=True)


@pytest.mark.parametrize("lookahead", [0, 16])
def test_a_token_a_page_gives_the_same_hits_as_every_token(lookahead: int):
    trace = read_trace(TAU_AIRLINE)
    short, full = make_workload(trace, 16), make_workload(trace, 16, expand=True)
    hits = replay(short, 750, lookahead=lookahead)
    assert hits == replay(full, 750, lookahead=lookahead)
    assert hits.num_evicted_pages > 0
