"""A prefix that several requests want is computed once, under every policy: tokens are counted."""

from __future__ import annotations

import pytest
from support.kv_oracle import reference
from support.serving import Serving

from minisgl.scheduler.ordering import POLICIES

EVERY_POLICY = pytest.mark.parametrize("policy", POLICIES.names)
OVERLAP = pytest.mark.parametrize("overlap", [False, True], ids=["plain", "overlap"])
PREFIX = [3 + i * 7 % 200 for i in range(80)]
TAIL = 5


def tail(number: int) -> list[int]:
    return [3 + (number * 37 + i * 11) % 230 for i in range(TAIL)]


def prompts(count: int) -> list[list[int]]:
    return [PREFIX + tail(number) for number in range(count)]


@EVERY_POLICY
@OVERLAP
@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("chunk", [24, 1000])
def test_requests_that_come_together_compute_their_common_prefix_once(
    policy: str, overlap: bool, page_size: int, chunk: int
) -> None:
    serving = Serving(1600 // page_size, page_size, max_extend_tokens=chunk, overlap=overlap, policy=policy)
    assert serving.generate(prompts(6), max_tokens=1) == [reference(prompt, 1) for prompt in prompts(6)]
    assert serving.engine.num_computed == 80 + 6 * TAIL


@EVERY_POLICY
@OVERLAP
@pytest.mark.parametrize("delay", [1, 2, 3])
def test_requests_that_come_steps_later_or_mid_chunk_join(policy: str, overlap: bool, delay: int) -> None:
    serving = Serving(400, max_extend_tokens=24, overlap=overlap, policy=policy)
    for prompt in prompts(4):
        serving.submit(prompt, max_tokens=1)
        for _ in range(delay):
            serving.step()
    serving.run()
    assert serving.engine.num_computed == 80 + 4 * TAIL


@EVERY_POLICY
@OVERLAP
def test_when_the_first_is_aborted_half_way_the_next_goes_on_from_what_was_stored(policy: str, overlap: bool) -> None:
    serving = Serving(400, max_extend_tokens=24, overlap=overlap, policy=policy)
    first, *others = [serving.submit(prompt, max_tokens=1) for prompt in prompts(5)]
    for _ in range(2):
        serving.step()
    serving.abort(first)
    serving.run()
    assert [serving.tokens[uid] for uid in others] == [reference(prompt, 1) for prompt in prompts(5)[1:]]
    wasted = 24 if overlap else 0  # the chunk in flight is not stored
    assert serving.engine.num_computed <= 80 + 4 * TAIL + wasted


@EVERY_POLICY
def test_a_group_that_shares_less_waits_for_the_part_it_shares_only(policy: str) -> None:
    """They start as soon as their 40 tokens are stored, while the leader is still at its 400."""
    serving = Serving(1000, max_seq_len=500, max_extend_tokens=50, policy=policy)
    long = [3 + i * 13 % 240 for i in range(400)]
    leader = serving.submit(long, max_tokens=1)
    serving.step()
    serving.submit(long[:40] + tail(1), max_tokens=1)
    serving.submit(long[:40] + tail(2), max_tokens=1)
    for _ in range(8):
        serving.step()
    assert set(serving.finished) >= {leader}
    serving.run()
    assert serving.engine.num_computed == 400 + 2 * TAIL


@EVERY_POLICY
def test_many_followers_do_not_hide_a_request_that_could_run(policy: str) -> None:
    """20 followers are ahead of it, and there are 3 free rows."""
    serving = Serving(1000, max_running_req=4, max_extend_tokens=100, policy=policy)
    for number in range(21):
        serving.submit(PREFIX + tail(number), max_tokens=1, priority=1)
    unrelated = serving.submit([251 - token for token in tail(0)], max_tokens=1)
    serving.step()
    assert unrelated in serving.finished
    assert len(serving.finished) == 2
    serving.run()
    assert serving.engine.num_computed == 80 + 22 * TAIL


@pytest.mark.parametrize(("max_passed", "num_started"), [(5, 1), (14, 1), (15, 2)])
def test_a_step_passes_over_a_bounded_number_of_followers(
    max_passed: int, num_started: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a long queue of followers costs no more a step than a short one. 14 are ahead of one that could run."""
    monkeypatch.setattr("minisgl.scheduler.admission.MAX_PASSED", max_passed)
    serving = Serving(1000, max_extend_tokens=100)
    for number in range(15):
        serving.submit(PREFIX + tail(number), max_tokens=1)
    serving.submit([251 - token for token in tail(0)], max_tokens=3)
    serving.step()
    assert len(serving.engine.batches[0].batch.reqs) == num_started
    serving.run()
    assert serving.engine.num_computed == 80 + 16 * TAIL + 2


def test_nobody_waits_for_what_was_stored_already_though_nobody_has_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """After three chunks of 24 the leader has 8 tokens left that the other needs too: less than half of its 17."""
    monkeypatch.setattr("minisgl.scheduler.admission.MAX_ADVANCED", 0)
    serving = Serving(400, max_extend_tokens=24)
    serving.submit([*PREFIX, *tail(1), 7, 7, 7, 7], max_tokens=1)
    other = serving.submit([*PREFIX, *tail(2), 7, 7, 7, 7], max_tokens=1)
    for _ in range(4):
        serving.step()
    assert [req.uid for req in serving.engine.batches[3].batch.reqs] == [0, other]
    serving.run()
    assert serving.cached_len[other] == 72


def test_followers_come_back_a_few_a_step_and_one_that_is_aborted_meanwhile_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("minisgl.scheduler.admission.MAX_REJOINED", 1)
    serving = Serving(1000)
    uids = [serving.submit(PREFIX + tail(number), max_tokens=1) for number in range(5)]
    serving.step()
    serving.step()
    serving.abort(uids[2])
    serving.run()
    assert {uid for uid in uids if serving.finished[uid].finish_reason == "abort"} == {uids[2]}
    starts = [len(launched.batch.reqs) for launched in serving.engine.batches]
    assert starts == [1, 1, 1, 1]


@EVERY_POLICY
def test_a_request_with_prompt_log_probabilities_joins_nobody(policy: str) -> None:
    serving = Serving(1000, policy=policy)
    serving.submit(PREFIX, max_tokens=1)
    serving.submit(PREFIX, max_tokens=1, prompt_logprobs=0)
    serving.step()
    assert serving.engine.num_computed == 2 * 80


def test_a_group_behind_another_groups_leader_is_found_by_its_own() -> None:
    """Two prefixes that part after 40 tokens: both tails are computed once, and at the same time."""
    serving = Serving(1000, max_running_req=16)
    one, two = PREFIX, PREFIX[:40] + [200 + i % 30 for i in range(60)]
    for number in range(3):
        serving.submit(one + tail(number), max_tokens=1)
        serving.submit(two + tail(number), max_tokens=1)
    serving.run()
    assert serving.engine.num_computed == 40 + 40 + 60 + 6 * TAIL
