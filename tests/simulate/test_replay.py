from __future__ import annotations

import pytest
from support.traces import TAU_AIRLINE, prompts

from minisgl.simulate.belady import best_hits, next_uses
from minisgl.simulate.counts import HitCounts
from minisgl.simulate.replay import replay
from minisgl.simulate.trace import read_trace
from minisgl.simulate.workload import Workload, make_workload


def of(*paths: list[int]) -> Workload:
    return make_workload(prompts(*paths), 1)


def test_lru_hits_what_came_last_and_trims_what_it_evicts():
    # [3, 4] pushes out [2] and the tail of [1, 5, 6], whose head is still there for the last one. That pushes out 4.
    counts = replay(of([2], [1, 5, 6], [3, 4], [1, 5, 6]), 4)
    assert counts == HitCounts(num_requests=4, prompt_tokens=9, hit_tokens=2, num_evicted_pages=3)


def test_a_request_that_is_in_sight_keeps_what_it_will_hit():
    # When 3 comes, 1 is the oldest; it is needed by the second request after that.
    workload = of([1], [2], [3], [4], [1])
    assert [replay(workload, 2, lookahead=lookahead).hit_tokens for lookahead in (0, 1, 2, 3)] == [0, 0, 1, 1]


def test_where_every_leaf_is_in_sight_the_one_needed_last_goes():
    # Three are in sight and room is for two: 1 comes before 2, so 2 goes for 3.
    assert replay(of([1], [2], [3], [1], [2]), 2, lookahead=4).hit_tokens == 1


def test_with_all_in_sight_look_ahead_is_the_optimum_on_real_requests():
    workload = make_workload(read_trace(TAU_AIRLINE), 16)
    best = best_hits(workload, 800, next_uses(workload))
    assert replay(workload, 800, lookahead=200).hit_tokens == best.hit_tokens


def test_another_policy_evicts_another_page():
    # fifo forgets 1 although it has just been used; lru forgets 2.
    workload = of([1], [2], [1], [3], [1])
    assert (replay(workload, 2, "lru").hit_tokens, replay(workload, 2, "fifo").hit_tokens) == (2, 1)


def test_the_same_trace_gives_the_same_counts():
    workload = make_workload(read_trace(TAU_AIRLINE), 16)
    assert replay(workload, 800, lookahead=8) == replay(workload, 800, lookahead=8)


@pytest.mark.parametrize("num_pages", [750, 1000, 2000])
def test_look_ahead_never_hits_less_than_lru_on_real_requests(num_pages: int):
    workload = make_workload(read_trace(TAU_AIRLINE), 16)
    assert replay(workload, num_pages, lookahead=8).hit_tokens >= replay(workload, num_pages).hit_tokens


def test_a_pool_that_is_too_small_for_a_request_is_refused():
    with pytest.raises(ValueError, match="pages=2, but the largest request of made up needs 3"):
        replay(of([1, 2, 3]), 2)


def test_progress_is_told_after_each_request():
    told: list[None] = []
    replay(of([1], [2]), 2, progress=lambda: told.append(None))
    assert len(told) == 2
