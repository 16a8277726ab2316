"""Pages run out, and a running request gives up its own: nobody but the clock may notice."""

from __future__ import annotations

import numpy as np
import pytest
from support.kv_oracle import reference
from support.serving import Serving

from minisgl.core import SamplingParams, TokenLogprobs
from minisgl.scheduler.cache_manager import CacheManager
from minisgl.scheduler.request import Request
from minisgl.scheduler.reserve import FullReserve
from minisgl.scheduler.retraction import MAX_RENEWED, Promises

OVERLAP = pytest.mark.parametrize("overlap", [False, True], ids=["plain", "overlap"])


def prompt(length: int, seed: int = 0) -> list[int]:
    return [3 + (seed * 101 + i * 7) % 200 for i in range(length)]


def is_retracted(serving: Serving, uid: int) -> bool:
    request = serving.scheduler._admission.find(uid)
    return request is not None and request.num_admissions > 0


def run_until_retracted(serving: Serving, uid: int) -> None:
    for _ in range(200):
        if is_retracted(serving, uid):
            return
        serving.step()
    raise AssertionError(f"uid {uid} was never retracted")


def num_retracted(serving: Serving) -> int:
    return serving.scheduler.stats().num_retracted


@OVERLAP
@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("cache_type", ["radix", "naive"])
def test_tokens_are_those_of_a_run_with_room_for_all(overlap: bool, page_size: int, cache_type: str) -> None:
    serving = Serving(
        num_pages=48 // page_size, page_size=page_size, overlap=overlap, cache_type=cache_type, reserve="stingy"
    )
    prompts = [prompt(9, seed) for seed in range(5)]
    assert serving.generate(prompts, max_tokens=20) == [reference(p, 20) for p in prompts]
    assert num_retracted(serving) >= 3


@OVERLAP
def test_what_is_still_cached_is_not_computed_again(overlap: bool) -> None:
    """The pool is one page short, so one page of the retracted request is lost."""
    serving = Serving(num_pages=2 * 19 - 1, overlap=overlap, reserve="stingy")
    prompts = [prompt(10), prompt(10, seed=1)]
    assert serving.generate(prompts, max_tokens=10) == [reference(p, 10) for p in prompts]
    assert num_retracted(serving) == 1
    lost = serving.scheduler.stats().evicted_tokens
    assert lost <= 2
    assert serving.engine.num_computed - 2 * 19 <= lost + 1


@OVERLAP
def test_the_one_that_loses_least_is_retracted(overlap: bool) -> None:
    serving = Serving(num_pages=60, overlap=overlap, reserve="stingy")
    oldest, short, long = (serving.submit(prompt(n, seed=n), max_tokens=20) for n in (21, 8, 20))
    run_until_retracted(serving, short)
    assert not is_retracted(serving, oldest)
    assert not is_retracted(serving, long)
    serving.run()


def test_what_others_hold_too_is_no_loss() -> None:
    serving = Serving(num_pages=50, reserve="stingy")
    serving.submit(prompt(24), max_tokens=20)
    serving.step()
    shares = serving.submit([*prompt(24), 1], max_tokens=20)
    alone = serving.submit(prompt(8, seed=1), max_tokens=20)
    run_until_retracted(serving, shares)
    assert not is_retracted(serving, alone)
    serving.run()


@OVERLAP
def test_the_oldest_is_never_retracted(overlap: bool) -> None:
    serving = Serving(num_pages=40, overlap=overlap, reserve="stingy")
    oldest = serving.submit(prompt(2), max_tokens=30)
    young = serving.submit(prompt(20, seed=1), max_tokens=20)
    run_until_retracted(serving, young)
    assert not is_retracted(serving, oldest)
    serving.run()
    assert serving.tokens[oldest] == reference(prompt(2), 30)


def test_who_came_first_is_not_retracted_though_it_was_admitted_last() -> None:
    """Else those that start before a retracted one comes back could put it off again and again."""
    serving = Serving(num_pages=40, policy="priority", reserve="stingy")
    oldest = serving.submit(prompt(5), max_tokens=20)
    hurried = serving.submit(prompt(20, seed=1), max_tokens=20, priority=1)
    serving.step()
    assert list(serving.scheduler._admitted) == [hurried, oldest]
    run_until_retracted(serving, hurried)
    serving.run()
    assert num_retracted(serving) == 1


def test_a_retracted_request_goes_on_before_others_start() -> None:
    serving = Serving(num_pages=40, max_running_req=2, reserve="stingy")
    serving.submit(prompt(10), max_tokens=20)
    second = serving.submit(prompt(10, seed=1), max_tokens=20)
    third = serving.submit(prompt(3, seed=2), max_tokens=20)
    run_until_retracted(serving, second)
    while not is_running(serving, second):
        assert not is_running(serving, third)  # though it is small, and would fit
        serving.step()
    serving.run()


def is_running(serving: Serving, uid: int) -> bool:
    return uid in serving.scheduler._admitted


@OVERLAP
@pytest.mark.parametrize("how", ["abort", "stop", "flush", "purge"])
def test_a_retracted_request_can_be_ended_or_flushed_while_it_waits(overlap: bool, how: str) -> None:
    serving = Serving(num_pages=40, overlap=overlap, reserve="stingy")
    first, second = serving.submit(prompt(12), max_tokens=20), serving.submit(prompt(10, seed=1), max_tokens=20)
    run_until_retracted(serving, second)
    before = list(serving.tokens[second])
    assert before
    if how == "abort":
        serving.abort(second)
    elif how == "stop":
        serving.finish(second, 1)
    elif how == "flush":
        serving.flush()
    else:
        serving.purge(prompt(5, seed=1))
    serving.run()
    assert serving.tokens[first] == reference(prompt(12), 20)
    if how == "abort":
        assert serving.finished[second].finish_reason == "abort"
    if how in ("abort", "stop"):
        assert serving.tokens[second] == before
    else:
        assert serving.tokens[second] == reference(prompt(10, seed=1), 20)


@OVERLAP
def test_a_prompt_may_be_retracted_between_its_chunks(overlap: bool) -> None:
    """Its first reply still tells what was cached, and how long it waited, when it was first admitted."""
    serving = Serving(num_pages=60, max_extend_tokens=4, overlap=overlap, reserve="stingy")
    serving.generate([prompt(8, seed=1)], max_tokens=1)
    first = serving.submit(prompt(3), max_tokens=52)
    while len(serving.tokens[first]) < 30:
        serving.step()
    second = serving.submit(prompt(26, seed=1), max_tokens=4)
    run_until_retracted(serving, second)
    assert not serving.tokens[second]
    serving.run()
    assert serving.tokens[second] == reference(prompt(26, seed=1), 4)
    assert serving.cached_len[second] == 8
    stats = serving.scheduler.stats()
    assert (stats.queried_tokens, stats.hit_tokens) == (8 + 3 + 26, 8)


@OVERLAP
def test_with_full_nobody_is_ever_retracted(overlap: bool) -> None:
    serving = Serving(num_pages=48, overlap=overlap, reserve="full")
    serving.generate([prompt(9, seed) for seed in range(5)], max_tokens=20)
    assert num_retracted(serving) == 0


def test_an_estimate_lets_more_run_side_by_side_once_outputs_are_known() -> None:
    def most_at_once(reserve: str) -> int:
        serving = Serving(num_pages=400, max_running_req=64, reserve=reserve)
        ends = frozenset(range(3, 30))  # one token in nine ends a text
        serving.scheduler.end_token_ids = ends
        uids = [serving.submit(prompt(4, seed), max_tokens=100) for seed in range(80)]
        most = 0
        while serving.loop.has_work or not serving.num_steps:
            serving.step()
            most = max(most, serving.scheduler.stats().num_running)
        assert [serving.tokens[uid] for uid in uids] == [reference(serving.prompts[uid], 100, ends) for uid in uids]
        return most

    assert most_at_once("full") == 3
    assert most_at_once("estimate") >= 12


def test_log_probabilities_of_a_prompt_are_taken_once() -> None:
    """Positions 1, 2 were told before the retraction; 2, 3 come when it goes on from a cached first token."""
    request = Request(0, np.array([5, 6, 7, 8], np.int32), SamplingParams(prompt_logprobs=0), 0, frozenset(), 9)
    old, new = [TokenLogprobs(token, -1.0) for token in (6, 7)], [TokenLogprobs(token, -2.0) for token in (7, 8)]
    request.take_prompt_logprobs(1, tuple(old))
    assert request.wanted_ids.tolist() == [5, 6, 7]
    request.take_prompt_logprobs(2, tuple(new))
    assert request.prompt_logprobs == [None, *old, new[1]]
    assert request.wanted_ids.tolist() == [5, 6, 7, 8]


def test_promises_are_renewed_in_turn_some_at_each_step() -> None:
    class Guess(FullReserve):
        tokens = 5

        def kv_len(self, request: Request) -> int:
            return self.tokens

    manager, reserve, ids = CacheManager(5000, 1, 100, 50, "radix"), Guess(), np.array([5, 6], np.int32)
    running = [Request(uid, ids, SamplingParams(), 0, frozenset(), 40) for uid in range(2 * MAX_RENEWED + 1)]
    for request in running:
        allocation = manager.admit(manager.match(ids), 5)
        assert allocation is not None
        request.start(allocation)
    promises = Promises(manager, reserve)
    reserve.tokens = 9
    promises.renew(running)
    assert manager.available_pages == 5000 - 5 * len(running)  # nothing was learned since
    promises.finished(running[0])
    for num_renewed in (MAX_RENEWED, 2 * MAX_RENEWED, len(running), len(running)):
        promises.renew(running)
        assert manager.available_pages == 5000 - 5 * len(running) - 4 * num_renewed
