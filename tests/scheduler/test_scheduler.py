"""The scheduler over the KV oracle: every token that comes out is the one that an uncached run gives."""

from __future__ import annotations

import numpy as np
import pytest
from support.kv_oracle import reference
from support.serving import Serving

OVERLAP = pytest.mark.parametrize("overlap", [False, True], ids=["plain", "overlap"])


def prompt(length: int, seed: int = 0) -> list[int]:
    return [3 + (seed * 101 + i * 7) % 200 for i in range(length)]


@OVERLAP
@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("cache_type", ["naive", "radix"])
def test_tokens_are_those_of_an_uncached_run(overlap: bool, page_size: int, cache_type: str) -> None:
    serving = Serving(num_pages=640 // page_size, page_size=page_size, overlap=overlap, cache_type=cache_type)
    prompts = [prompt(1), prompt(15), prompt(40), prompt(40), prompt(40)[:33], prompt(33, seed=5)]
    for _ in range(2):  # cold, then warm
        assert serving.generate(prompts, max_tokens=9) == [reference(p, 9) for p in prompts]


@OVERLAP
def test_a_repeated_prompt_computes_one_token(overlap: bool) -> None:
    serving = Serving(overlap=overlap)
    serving.generate([prompt(20)], max_tokens=1)
    before = serving.engine.num_computed
    serving.generate([prompt(20)], max_tokens=1)
    assert serving.engine.num_computed - before == 1


def test_with_overlap_off_and_room_for_all_prefill_batches_hold_no_decodes() -> None:
    serving = Serving()
    serving.submit(prompt(10), max_tokens=20)
    serving.step()
    serving.submit(prompt(12, seed=1), max_tokens=20)
    serving.run()
    for launched in serving.engine.batches:
        kinds = {req.is_prefill for req in launched.batch.reqs}
        assert len(kinds) == 1


@OVERLAP
@pytest.mark.parametrize("chunk", [1, 7, 16])
def test_a_running_request_gets_a_token_at_least_every_other_step(overlap: bool, chunk: int) -> None:
    serving = Serving(num_pages=512, max_extend_tokens=chunk, overlap=overlap)
    talker = serving.submit(prompt(3), max_tokens=60)
    while not serving.tokens[talker]:
        serving.step()
    late = [serving.submit(prompt(50, seed=1)), serving.submit(prompt(70, seed=2)), serving.submit(prompt(5, seed=3))]
    gaps, last = [], 0
    while talker not in serving.finished:
        before = len(serving.tokens[talker])
        serving.step()
        last = 0 if len(serving.tokens[talker]) > before else last + 1
        gaps.append(last)
    serving.run()
    assert max(gaps) <= 1
    assert [serving.tokens[uid] for uid in late] == [
        reference(p, 4) for p in (prompt(50, seed=1), prompt(70, seed=2), prompt(5, seed=3))
    ]


def test_a_stream_of_new_prompts_never_stops_a_running_request() -> None:
    serving = Serving(num_pages=1024)
    talker = serving.submit(prompt(3), max_tokens=40)
    serving.step()
    for seed in range(1, 60):
        before = len(serving.tokens[talker])
        serving.submit(prompt(10, seed), max_tokens=1)
        serving.step()
        serving.submit(prompt(10, seed + 100), max_tokens=1)
        serving.step()
        if talker in serving.finished:
            break
        assert len(serving.tokens[talker]) > before
    serving.run()


@OVERLAP
@pytest.mark.parametrize("page_size", [1, 4])
def test_equal_prompts_together_compute_their_whole_pages_once(overlap: bool, page_size: int) -> None:
    serving = Serving(num_pages=400 // page_size, page_size=page_size, overlap=overlap)
    prompts = [prompt(41)] * 5
    assert serving.generate(prompts, max_tokens=1) == [reference(prompt(41), 1)] * 5
    assert serving.engine.num_computed == 41 + 4 * 1


def test_equal_prompts_are_joined_chunk_by_chunk() -> None:
    serving = Serving(num_pages=200, max_extend_tokens=8)
    serving.generate([prompt(40), prompt(40), prompt(40)[:30] + prompt(9, seed=9)], max_tokens=1)
    assert serving.engine.num_computed == 40 + 1 + 9


@OVERLAP
def test_when_the_first_of_equal_prompts_is_aborted_the_next_takes_over(overlap: bool) -> None:
    serving = Serving(num_pages=200, max_extend_tokens=8, overlap=overlap)
    first, second = serving.submit(prompt(40)), serving.submit(prompt(40))
    serving.step()
    serving.step()
    serving.abort(first)
    serving.run()
    assert serving.finished[first].finish_reason == "abort"
    assert serving.tokens[second] == reference(prompt(40), 4)
    assert serving.engine.num_computed <= 40 + 8 + 4  # what the first one had computed is not computed again


def test_joining_is_off_without_a_shared_cache() -> None:
    serving = Serving(cache_type="naive", num_pages=200)
    serving.generate([prompt(20), prompt(20)], max_tokens=1)
    assert len(serving.engine.batches) == 1


@OVERLAP
@pytest.mark.parametrize("when", range(12))
def test_abort_at_any_step_gives_everything_back(overlap: bool, when: int) -> None:
    serving = Serving(page_size=4, num_pages=40, max_extend_tokens=16, overlap=overlap)
    doomed, other = serving.submit(prompt(37), max_tokens=6), serving.submit(prompt(11, seed=3), max_tokens=6)
    for _ in range(when):
        serving.step()
    serving.abort(doomed)
    serving.run()
    assert serving.finished[doomed].finish_reason in ("abort", "length")
    assert serving.tokens[other] == reference(prompt(11, seed=3), 6)


@OVERLAP
def test_abort_together_with_an_end_token_frees_once(overlap: bool) -> None:
    first = reference(prompt(9), 1)[0]
    serving = Serving(end_token_ids=frozenset({first}), overlap=overlap)
    uid = serving.submit(prompt(9))
    serving.step()
    serving.abort(uid)
    serving.run()
    assert serving.finished[uid].finish_reason in ("stop", "abort")


@OVERLAP
def test_a_stop_found_later_truncates_what_is_kept(overlap: bool) -> None:
    serving = Serving(num_pages=100, overlap=overlap)
    uid = serving.submit(prompt(10), max_tokens=30)
    while len(serving.tokens[uid]) < 5:
        serving.step()
    serving.finish(uid, num_tokens=3)
    serving.run()
    kept = prompt(10) + reference(prompt(10), 3)
    assert serving.manager.prefix_cache.size_info.evictable_size == len(kept)


@OVERLAP
def test_end_tokens_stop_and_ignore_eos_does_not(overlap: bool) -> None:
    out = reference(prompt(8), 6)
    serving = Serving(end_token_ids=frozenset({out[2]}), overlap=overlap)
    stops, ignores = serving.submit(prompt(8), 6), serving.submit(prompt(8), 6, ignore_eos=True)
    asked = serving.submit(prompt(8), 6, ignore_eos=True, stop_token_ids=[out[4]])
    serving.run()
    assert serving.tokens[stops] == out[: out.index(out[2]) + 1]
    assert serving.finished[stops].finish_reason == "stop"
    assert serving.tokens[ignores] == out
    assert serving.finished[ignores].finish_reason == "length"
    assert serving.tokens[asked] == out[: out.index(out[4]) + 1]


@pytest.mark.parametrize("length", [63, 64])
def test_a_prompt_may_fill_the_pool(length: int) -> None:
    serving = Serving(num_pages=64, max_seq_len=1000)
    uid = serving.submit(prompt(length), max_tokens=100)
    serving.run(max_steps=110)
    assert serving.finished[uid].finish_reason == "length"
    assert serving.tokens[uid] == reference(prompt(length), 65 - length)


def test_a_request_that_can_never_fit_is_answered_and_blocks_nobody() -> None:
    serving = Serving(num_pages=64, max_seq_len=1000)
    too_long = serving.submit(prompt(100))
    cut = serving.submit(prompt(60), max_tokens=100)
    small = [serving.submit(prompt(8, seed), max_tokens=2) for seed in (1, 2, 3)]
    serving.run()
    error = serving.finished[too_long].error
    assert error is not None
    assert "100" in error
    assert "64" in error
    assert serving.finished[cut].finish_reason == "length"
    assert serving.tokens[cut] == reference(prompt(60), 5)
    assert [serving.tokens[uid] for uid in small] == [reference(prompt(8, seed), 2) for seed in (1, 2, 3)]


def test_a_burst_of_short_prompts_with_a_large_page_is_served() -> None:
    serving = Serving(num_pages=4, page_size=64, max_running_req=16)
    assert serving.generate([prompt(3, seed) for seed in range(10)]) == [
        reference(prompt(3, seed), 4) for seed in range(10)
    ]


def test_a_waiting_request_is_admitted_at_the_step_after_room_was_made() -> None:
    serving = Serving(num_pages=32, max_running_req=1)
    first, second = serving.submit(prompt(8), max_tokens=3), serving.submit(prompt(8, seed=1), max_tokens=1)
    while first not in serving.finished:
        serving.step()
    serving.step()
    assert second in serving.finished


def test_a_blocked_request_is_not_matched_again_until_something_was_freed() -> None:
    serving = Serving(num_pages=32)
    calls = []
    match = serving.manager.match
    serving.manager.match = lambda ids, space: calls.append(len(ids)) or match(ids, space)  # type: ignore[method-assign, func-returns-value]
    serving.submit(prompt(4), max_tokens=24)
    serving.step()
    serving.submit(prompt(10, seed=1), max_tokens=10)
    for _ in range(15):
        serving.step()
    assert len(calls) == 2
    serving.run()


@OVERLAP
def test_a_failed_row_fails_alone_and_its_pages_are_not_kept(overlap: bool) -> None:
    serving = Serving(num_pages=64, overlap=overlap)
    serving.engine.fail_tokens = frozenset({reference(prompt(8), 3)[2]})
    bad, good = serving.submit(prompt(8), max_tokens=8), serving.submit(prompt(8, seed=4), max_tokens=8)
    serving.run()
    assert serving.finished[bad].finish_reason == "error"
    assert serving.finished[bad].error == "failed on purpose"
    assert serving.tokens[good] == reference(prompt(8, seed=4), 8)
    kept = np.array(prompt(8) + reference(prompt(8), 3), np.int32)
    assert serving.manager.match(kept).cached_len == 8  # the prompt, stored before the failure; nothing generated


@pytest.mark.parametrize("how", ["abort", "stop", "end token"])
def test_a_batch_that_fails_after_its_request_was_over_leaves_nothing_in_the_cache(how: str) -> None:
    """Under overlap: the request ends, then its last batch in flight fails, whose KV was never written."""
    out = reference(prompt(8), 3)
    ends = frozenset({out[1]}) if how == "end token" else frozenset()
    serving = Serving(num_pages=64, overlap=True, end_token_ids=ends)
    uid = serving.submit(prompt(8), max_tokens=9)
    while len(serving.tokens[uid]) < 1:
        serving.step()
    serving.engine.fail_steps.add(serving.scheduler._step)
    serving.step()
    if how == "abort":
        serving.abort(uid)
    elif how == "stop":
        serving.finish(uid, 2)
    serving.run()
    assert serving.generate([prompt(8) + out], max_tokens=3) == [reference(prompt(8) + out, 3)]


def test_prompts_with_only_their_first_token_in_common_start_together() -> None:
    """A common BOS is not worth waiting for."""
    serving = Serving(num_pages=640, max_running_req=16)
    serving.generate([[1, *prompt(20, seed)] for seed in range(16)], max_tokens=1)
    assert [len(launched.batch.reqs) for launched in serving.engine.batches] == [16]


@OVERLAP
@pytest.mark.parametrize("prompt_logprobs", [None, 0])
@pytest.mark.parametrize("chunk", [5, 1024])
def test_max_tokens_zero_computes_the_prompt_caches_it_and_ends(
    overlap: bool, prompt_logprobs: int | None, chunk: int
) -> None:
    serving = Serving(overlap=overlap, max_extend_tokens=chunk)
    uid = serving.submit(prompt(12), max_tokens=0, prompt_logprobs=prompt_logprobs)
    serving.run()
    assert serving.tokens[uid] == []
    assert serving.finished[uid].finish_reason == "length"
    assert serving.engine.num_computed == 12
    again = serving.submit(prompt(12), max_tokens=3)
    serving.run()
    assert serving.cached_len[again] == 11
    assert serving.tokens[again] == reference(prompt(12), 3)


@OVERLAP
@pytest.mark.parametrize("page_size", [1, 4])
def test_a_prompt_that_is_cached_already_may_be_asked_for_no_token(overlap: bool, page_size: int) -> None:
    serving = Serving(overlap=overlap, page_size=page_size)
    serving.generate([prompt(13)], max_tokens=1)
    talker = serving.submit(prompt(9, seed=1), max_tokens=20)
    for _ in range(3):
        serving.step()
    uids = [serving.submit(prompt(13), max_tokens=0) for _ in range(3)]
    serving.run()
    assert {serving.finished[uid].finish_reason for uid in uids} == {"length"}
    assert [serving.tokens[uid] for uid in uids] == [[], [], []]
    assert {serving.cached_len[uid] for uid in uids} == {12}
    assert serving.tokens[talker] == reference(prompt(9, seed=1), 20)


@OVERLAP
def test_those_that_wait_for_a_prompt_without_new_tokens_find_it(overlap: bool) -> None:
    serving = Serving(overlap=overlap, max_extend_tokens=16)
    leader = serving.submit(prompt(40), max_tokens=0)
    followers = [serving.submit([*prompt(40), 7 + n], max_tokens=n) for n in range(3)]
    serving.run()
    assert serving.tokens[leader] == []
    assert [serving.tokens[uid] for uid in followers] == [reference([*prompt(40), 7 + n], n) for n in range(3)]
    assert [serving.cached_len[uid] for uid in followers] == [40, 40, 40]


@OVERLAP
@pytest.mark.parametrize("num_steps", [0, 1, 2, 3, 4])
def test_an_aborted_prompt_without_new_tokens_gives_everything_back(overlap: bool, num_steps: int) -> None:
    serving = Serving(overlap=overlap, max_extend_tokens=8)
    uid = serving.submit(prompt(30), max_tokens=0)
    for _ in range(num_steps):
        serving.step()
    serving.abort(uid)
    serving.run()
    assert serving.tokens[uid] == []
    assert serving.finished[uid].finish_reason == ("abort" if num_steps < 4 + overlap else "length")


@OVERLAP
def test_a_prompt_as_long_as_the_context_or_the_pool_may_be_asked_for_no_token(overlap: bool) -> None:
    for limits in ({"max_seq_len": 30, "num_pages": 64}, {"max_seq_len": 64, "num_pages": 30}):
        serving = Serving(overlap=overlap, **limits)
        uid = serving.submit(prompt(30), max_tokens=0)
        serving.run()
        assert serving.finished[uid].finish_reason == "length"
        too_long = serving.submit(prompt(31), max_tokens=0)
        serving.run()
        assert serving.finished[too_long].finish_reason == "error"


def test_first_come_is_first_served() -> None:
    serving = Serving(num_pages=24, max_running_req=8)
    uids = [serving.submit(prompt(10, seed), max_tokens=4) for seed in range(6)]
    ends: list[int] = []
    while len(ends) < 6:
        serving.step()
        ends += [uid for uid in serving.finished if uid not in ends]
    assert ends == uids
