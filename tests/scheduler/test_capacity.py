"""What the scheduler tells of pools of other sizes."""

from __future__ import annotations

import numpy as np
import pytest
from support.serving import Serving

from minisgl.kvcache.capacity_curve import CapacityCurve
from minisgl.message import hit_rates

OVERLAP = pytest.mark.parametrize("overlap", [False, True], ids=["plain", "overlap"])
PROMPT, OTHER = list(range(20, 40)), list(range(60, 80))


def watched(num_pages: int = 64, page_size: int = 1, **settings: object) -> Serving:
    curve = CapacityCurve(num_pages, page_size, stride=1)
    return Serving(num_pages, page_size, curve=curve, **settings)  # type: ignore[arg-type]


def rates(serving: Serving) -> dict[float, float | None]:
    return dict(hit_rates(serving.scheduler.stats()))


@OVERLAP
def test_a_pool_for_one_of_two_prompts_that_take_turns_hits_none_and_one_twice_as_large_both(overlap: bool):
    serving = watched(num_pages=30, overlap=overlap)
    for _ in range(4):
        serving.generate([PROMPT], max_tokens=4)
        serving.generate([OTHER], max_tokens=4)
    found = rates(serving)
    assert found[1] == serving.scheduler.stats().hit_tokens / (8 * 20)
    assert found[0.5] == 0
    assert found[2] == found[8] == (8 - 2) * 19 / (8 * 20)


@OVERLAP
def test_a_later_turn_would_find_the_answer_before_it_in_a_larger_pool(overlap: bool):
    serving = watched(num_pages=30, overlap=overlap)
    (answer,) = serving.generate([PROMPT], max_tokens=5)
    serving.generate([OTHER], max_tokens=5)
    serving.generate([[*PROMPT, *answer, 99]], max_tokens=1)
    assert serving.scheduler.stats().capacity_hits[2] >= 20 + 5 - 1


@OVERLAP
@pytest.mark.parametrize("page_size", [1, 4])
def test_at_the_size_that_there_is_it_is_what_was_hit(overlap: bool, page_size: int):
    serving = watched(64 // page_size, page_size, overlap=overlap, reserve="stingy")
    rng = np.random.default_rng(3)
    for _ in range(6):
        prompts = [[*PROMPT[: rng.integers(1, 20)], *rng.integers(3, 200, 9).tolist()] for _ in range(4)]
        serving.generate(prompts, max_tokens=12)
    stats = serving.scheduler.stats()
    assert stats.num_retracted > 0
    assert (stats.capacity_hits[1], stats.capacity_queried) == (stats.hit_tokens, stats.queried_tokens)


def test_a_prompt_that_is_not_looked_up_is_left_out_but_what_it_leaves_is_found():
    serving = watched()
    serving.submit(PROMPT, 1, prompt_logprobs=0)
    serving.run()
    assert rates(serving)[8] is None
    serving.generate([PROMPT], max_tokens=1)
    assert rates(serving)[8] == rates(serving)[1] == 19 / 20


def test_after_a_flush_no_pool_would_hit_what_was_there():
    serving = watched()
    serving.generate([PROMPT])
    serving.flush()
    serving.generate([PROMPT])
    assert set(rates(serving).values()) == {0.0}


def test_what_a_stale_request_leaves_would_not_be_found_either():
    serving = watched()
    serving.submit(PROMPT, 8)
    serving.step()
    serving.flush()
    serving.run()
    serving.generate([PROMPT])
    assert set(rates(serving).values()) == {0.0}


def test_nothing_is_told_where_nobody_counts():
    serving = Serving()
    serving.generate([PROMPT, PROMPT])
    stats = serving.scheduler.stats()
    assert (stats.capacity_hits, stats.capacity_queried) == ((), 0)
    assert {rate for _, rate in hit_rates(stats)} == {None}
