"""The queue over a real cache: what is expected, what is spared, and what a tenant can learn."""

from __future__ import annotations

import pytest
from support.kv_oracle import reference
from support.serving import Serving

from minisgl.scheduler.ordering import POLICIES

EVERY_POLICY = pytest.mark.parametrize("policy", POLICIES.names)


def prompt(length: int, seed: int = 0) -> list[int]:
    return [3 + (seed * 101 + i * 7) % 200 for i in range(length)]


def admitted(serving: Serving) -> list[int]:
    """In order."""
    return list(dict.fromkeys(req.uid for launched in serving.engine.batches for req in launched.batch.reqs))


@EVERY_POLICY
@pytest.mark.parametrize("overlap", [False, True], ids=["plain", "overlap"])
def test_the_tokens_are_the_same_under_every_policy(policy: str, overlap: bool) -> None:
    serving = Serving(60, max_running_req=3, max_extend_tokens=16, overlap=overlap, policy=policy, lookahead=2)
    prompts = [prompt(20), prompt(33, 1), prompt(12)[:9] + prompt(9, 2), prompt(20), prompt(5, 3), prompt(33, 1)]
    assert serving.generate(prompts, 6) == [reference(each, 6) for each in prompts]


def test_an_unknown_policy_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="scheduling policy 'lifo'; known: fcfs, lpm, dfs-weight, priority, srp"):
        Serving(policy="lifo")


def test_a_waiting_request_moves_up_when_its_prefix_is_stored() -> None:
    """Nobody matches the queue again: the cache tells who has more now."""
    serving = Serving(400, max_running_req=1, policy="lpm")
    first = serving.submit(prompt(40), max_tokens=3)
    serving.step()
    other, shares = serving.submit(prompt(30, 5)), serving.submit(prompt(40) + prompt(5, 6))
    serving.run()
    assert admitted(serving) == [first, shares, other]


def test_and_down_when_it_is_flushed() -> None:
    serving = Serving(400, max_running_req=1, policy="lpm")
    serving.generate([prompt(40)], max_tokens=1)
    first = serving.submit(prompt(9, 4), max_tokens=3)
    serving.step()
    other, shares = serving.submit(prompt(30, 5)), serving.submit(prompt(40) + prompt(5, 6))
    serving.flush()
    serving.run()
    assert admitted(serving)[1:] == [first, other, shares]


def test_a_long_queue_moves_up_a_few_requests_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minisgl.scheduler.admission.MAX_ADVANCED", 3)
    monkeypatch.setattr("minisgl.scheduler.admission.MAX_REKEYED", 2)
    serving = Serving(400, max_running_req=1, max_extend_tokens=64, policy="lpm", max_overtakes=1000)
    first = serving.submit(prompt(40), max_tokens=20)
    serving.step()
    cold = [serving.submit(prompt(30, 5 + n), max_tokens=1) for n in range(5)]
    hot = [serving.submit([*prompt(40), 210 + n], max_tokens=1) for n in range(20)]
    serving.run()
    assert admitted(serving) == [first, *hot, *cold]


def test_a_request_that_leaves_before_it_could_move_up_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minisgl.scheduler.admission.MAX_REKEYED", 1)
    serving = Serving(400, max_running_req=1, policy="lpm")
    first = serving.submit(prompt(40), max_tokens=9)
    hot = [serving.submit([*prompt(40), 210 + n], max_tokens=1) for n in range(6)]
    for _ in range(3):
        serving.step()
    serving.abort(hot[4])
    serving.run()
    assert admitted(serving) == [first, *hot[:4], hot[5]]


def test_what_the_next_requests_would_hit_is_evicted_last() -> None:
    """By LRU alone the older of two prompts would go, which is the one that is wanted next."""
    hits = {}
    for lookahead in (0, 2):
        serving = Serving(100, max_running_req=1, lookahead=lookahead)
        serving.generate([prompt(40), prompt(40, 1)], max_tokens=1)
        serving.submit(prompt(30, 2), max_tokens=9)
        wanted = serving.submit([*prompt(40), 9], max_tokens=1)
        serving.run()
        hits[lookahead] = serving.cached_len[wanted]
    assert hits == {0: hits[0], 2: 40}
    assert hits[0] < 40


@EVERY_POLICY
def test_the_order_of_a_tenant_says_nothing_of_what_another_has_cached(policy: str) -> None:
    """b's requests, their order and the steps in which they run, are the same whether a's are cached or not."""
    runs = []
    for cached in (prompt(40), prompt(40, 9)):
        serving = Serving(1000, max_running_req=1, policy=policy)
        serving.submit(cached, max_tokens=1, salt="a")
        serving.submit(prompt(30, 3), max_tokens=1, salt="b")
        serving.run()
        before = len(serving.engine.batches)
        for n in range(4):
            serving.submit([*prompt(40), 200 + n], max_tokens=1, salt="a")
            serving.submit([*prompt(30, 3 + n % 2), 200 + n], max_tokens=1, salt="b")
        serving.run()
        steps = [launched.batch.reqs[0].uid for launched in serving.engine.batches[before:]]
        runs.append([(step, uid) for step, uid in enumerate(steps) if serving.salts[uid] == "b"])
    assert runs[0] == runs[1]


@EVERY_POLICY
def test_who_gave_up_its_pages_goes_on_before_who_waits(policy: str) -> None:
    serving, ends = retracting(policy), []
    while serving.scheduler.stats().num_retracted == 0:
        serving.step()
    late = [serving.submit(prompt(3, 90 + n), max_tokens=1, priority=9) for n in range(3)]
    while serving.loop.has_work:
        serving.step()
        ends += [uid for uid in serving.finished if uid not in ends]
    assert min(ends.index(uid) for uid in late) > 0
    for uid in late:
        assert serving.tokens[uid] == reference(serving.prompts[uid], 1)


@EVERY_POLICY
def test_who_gave_up_its_pages_can_be_aborted_while_it_waits(policy: str) -> None:
    serving = retracting(policy)
    while serving.scheduler.stats().num_retracted == 0:
        serving.step()
    for uid in serving.tokens:
        serving.abort(uid)
    serving.run()
    assert {reply.finish_reason for reply in serving.finished.values()} <= {"abort", "length"}


def retracting(policy: str) -> Serving:
    serving = Serving(100, policy=policy, reserve="stingy")
    for n in range(6):
        serving.submit(prompt(6, n), max_tokens=40)
    return serving


@EVERY_POLICY
def test_without_a_shared_cache_the_queue_works_the_same(policy: str) -> None:
    serving = Serving(64, cache_type="naive", policy=policy)
    assert serving.generate([prompt(12)] * 5, 3) == [reference(prompt(12), 3)] * 5


def test_aborting_everything_that_waits_leaves_nothing_watched() -> None:
    serving = Serving(100, max_running_req=1, policy="lpm")
    uids = [serving.submit(prompt(40), max_tokens=9) for _ in range(6)]
    serving.step()
    for uid in uids:
        serving.abort(uid)
    serving.run()
    assert serving.scheduler.stats().num_waiting == 0
    assert not serving.scheduler.has_work
