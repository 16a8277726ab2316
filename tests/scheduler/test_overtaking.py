"""Ageing's promise, counted from outside: nobody is overtaken more often than was said, whatever happens."""

from __future__ import annotations

import random

import pytest
from support.kv_oracle import reference
from support.serving import Serving

from minisgl.scheduler.ordering import POLICIES

EVERY_POLICY = pytest.mark.parametrize("policy", POLICIES.names)


class Admissions:
    """Steps a `Serving` and notes who was admitted, in order, and who came before whom."""

    def __init__(self, serving: Serving) -> None:
        self.serving = serving
        self.order: dict[int, None] = {}
        self.left: dict[int, int] = {}  # uid -> admissions when it was aborted

    def step(self) -> None:
        known = len(self.serving.engine.batches)
        self.serving.step()
        for launched in self.serving.engine.batches[known:]:
            self.order.update((req.uid, None) for req in launched.batch.reqs)

    def run(self) -> None:
        self.step()
        while self.serving.loop.has_work:
            self.step()

    def abort(self, uid: int) -> None:
        if uid not in self.order:
            self.left.setdefault(uid, len(self.order))
        self.serving.abort(uid)

    def overtakes(self, uid: int) -> int:
        order = list(self.order)
        end = order.index(uid) if uid in self.order else self.left[uid]
        return sum(other > uid for other in order[:end])


@EVERY_POLICY
@pytest.mark.parametrize("max_overtakes", [0, 3])
def test_nobody_is_overtaken_more_often_than_was_said(policy: str, max_overtakes: int) -> None:
    rng = random.Random(max_overtakes)
    serving = Serving(
        num_pages=rng.choice([48, 96]),
        max_running_req=rng.choice([2, 4]),
        max_extend_tokens=rng.choice([8, 32, 200]),
        overlap=rng.random() < 0.5,
        policy=policy,
        max_overtakes=max_overtakes,
        lookahead=rng.choice([0, 4]),
        reserve="stingy",
    )
    admissions = Admissions(serving)
    stems = [[rng.choice([20, 21, 22]) for _ in range(rng.randint(1, 24))] for _ in range(4)]
    for _ in range(50):
        for _ in range(rng.choice([0, 0, 1, 1, 2, 3])):
            prompt = rng.choice(stems) + [rng.choice([20, 21, 22]) for _ in range(rng.randint(1, 9))]
            salt, priority = rng.choice(["", "", "a"]), rng.randrange(3)
            serving.submit(prompt, rng.choice([1, 2, 12]), salt, priority)
        if rng.random() < 0.15 and serving.prompts:
            admissions.abort(rng.choice(list(serving.prompts)))
        admissions.step()
    admissions.run()
    assert serving.scheduler.stats().num_retracted > 0
    counts = [admissions.overtakes(uid) for uid in serving.prompts]
    assert max(counts) <= max_overtakes
    if policy != "fcfs":
        assert max(counts) == max_overtakes, "the promise was not put to the test"
    for uid, reply in serving.finished.items():
        if reply.finish_reason != "abort":
            assert serving.tokens[uid] == reference(serving.prompts[uid], serving.params[uid].max_tokens)


def hot_and_cold(policy: str, max_overtakes: int, num_hot: int) -> tuple[Admissions, int]:
    """One that finds nothing cached, and after it many that find all but a token."""
    serving = Serving(200, max_running_req=2, policy=policy, max_overtakes=max_overtakes)
    hot = [3 + i % 7 for i in range(40)]
    serving.generate([hot], max_tokens=1)
    admissions = Admissions(serving)
    cold = serving.submit([100 + i for i in range(60)], max_tokens=1)
    for number in range(num_hot):
        serving.submit([*hot, 50 + number % 200], max_tokens=1)
    return admissions, cold


@pytest.mark.parametrize("policy", ["lpm", "srp", "dfs-weight"])
def test_a_cold_request_among_hot_ones_runs_after_as_many_as_was_said(policy: str) -> None:
    admissions, cold = hot_and_cold(policy, max_overtakes=10, num_hot=100)
    admissions.run()
    assert admissions.overtakes(cold) == 10


def test_while_an_aged_request_does_not_fit_nobody_else_starts() -> None:
    """So the pages that are given back are for it."""
    serving = Serving(100, max_running_req=8, policy="priority", max_overtakes=2, reserve="full")
    admissions = Admissions(serving)
    serving.submit([9] * 60, max_tokens=30)
    admissions.step()
    large = serving.submit([8] * 50, max_tokens=10)
    small = [serving.submit([7 - n, 3], max_tokens=2, priority=1) for n in range(4)]
    for _ in range(20):
        admissions.step()
    assert list(admissions.order)[1:] == small[:2]
    admissions.run()
    assert list(admissions.order)[1:] == [*small[:2], large, *small[2:]]


def test_an_aged_follower_is_not_overtaken_while_its_leader_computes() -> None:
    serving = Serving(400, max_running_req=8, max_extend_tokens=100, policy="srp", max_overtakes=1, overlap=True)
    admissions = Admissions(serving)
    prompt = [3 + i * 7 % 200 for i in range(90)]
    leader = serving.submit(prompt, max_tokens=1)
    admissions.step()
    follower = serving.submit([*prompt, 5, 6], max_tokens=1)
    short = [serving.submit([9, 8, 7 - n], max_tokens=1) for n in range(3)]
    admissions.run()
    assert admissions.overtakes(follower) == 1
    assert list(admissions.order)[:3] == [leader, short[0], follower]
