"""Random arrivals, shared prefixes, salts, aborts, stops, flushes, retractions; pages are recounted after each step."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import cached_property

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.kv_oracle import reference
from support.serving import Serving

from minisgl.kvcache.eviction import EVICTION_POLICIES
from minisgl.scheduler.ordering import POLICIES
from minisgl.utils.math import div_ceil

END_TOKENS = frozenset(range(3, 12))


@dataclass
class Play:
    """One random run: what was asked for, and what must come of it."""

    rng: random.Random
    serving: Serving
    aborted: set[int] = field(default_factory=set)
    salts: tuple[str, ...] = ("",)
    longest: int = 9  # tokens that are asked for
    cut: dict[int, int] = field(default_factory=dict)  # uid -> tokens after which a stop string was "found"

    def run(self, num_steps: int) -> None:
        while self.serving.num_steps < num_steps:
            for _ in range(self.rng.choice([0, 0, 0, 1, 1, 3])):
                self.arrive()
            if self.rng.random() < 0.2 and self.serving.prompts:
                self.abort()
            if self.rng.random() < 0.2:
                self.stop()
            if self.rng.random() < 0.03:
                self.serving.flush()
            if self.rng.random() < 0.03 and self.serving.prompts:
                self.purge()
            if self.rng.random() < 0.03:
                self.serving.engine.fail_steps.add(self.serving.scheduler._step)
            self.serving.step()
        self.serving.run()
        for uid in self.serving.prompts:
            self.check(uid)

    def arrive(self) -> None:
        rng, prompts = self.rng, self.serving.prompts
        old = rng.choice(list(prompts.values())) if prompts and rng.random() < 0.7 else []
        ids = old[: rng.randint(0, len(old))] + [rng.choice([20, 21]) for _ in range(rng.randint(1, 24))]
        if rng.random() < 0.1:
            self.serving.submit(ids, max_tokens=rng.randint(0, 3), prompt_logprobs=0)
        else:
            self.serving.submit(ids, max_tokens=rng.randint(1, self.longest), salt=rng.choice(self.salts))

    def abort(self) -> None:
        uid = self.rng.choice(list(self.serving.prompts))
        if uid not in self.cut:
            self.aborted.add(uid)
            self.serving.abort(uid)

    def purge(self) -> None:
        ids = self.rng.choice(list(self.serving.prompts.values()))
        self.serving.purge(ids[: self.rng.randint(1, len(ids))], self.rng.choice(self.salts))

    def stop(self) -> None:
        running = [uid for uid, out in self.serving.tokens.items() if out and uid not in self.serving.finished]
        running = [uid for uid in running if uid not in self.cut and uid not in self.aborted]
        if running:
            uid = self.rng.choice(running)
            self.cut[uid] = self.rng.randint(1, len(self.serving.tokens[uid]))
            self.serving.finish(uid, self.cut[uid])

    def check(self, uid: int) -> None:
        """The text is a beginning of the uncached one, and ends where and why it must."""
        serving, prompt = self.serving, self.serving.prompts[uid]
        limits, params = serving.scheduler.limits, serving.params[uid]
        got, reply = serving.tokens[uid], serving.finished.get(uid)
        assert serving.cached_len.get(uid, 0) <= self.longest_prefix_of_its_salt(uid)
        max_tokens = limits.max_device_len(len(prompt), params) - len(prompt)
        wanted = reference(prompt, max_tokens, serving.scheduler.end_token_ids)
        assert got == wanted[: len(got)]
        if reply is None:
            assert uid in self.cut, f"uid {uid} was never answered"
        elif reply.finish_reason == "abort":
            assert uid in self.aborted
        elif reply.finish_reason == "error":
            assert uid in serving.engine.failed_uids or len(prompt) > limits.pool_len
        else:
            ended = bool(got) and got[-1] in serving.scheduler.end_token_ids
            assert (got, reply.finish_reason) == (wanted, "stop" if ended else "length")

    def longest_prefix_of_its_salt(self, uid: int) -> int:
        salts, prompt = self.serving.salts, self.serving.prompts[uid]
        others = [other for other in self.texts if other != uid and salts[other] == salts[uid]]
        return max((common_len(prompt, self.texts[other]) for other in others), default=0)

    @cached_property
    def texts(self) -> dict[int, list[int]]:
        """The longest text of each request; looked at when all have come."""
        prompts = self.serving.prompts
        return {uid: prompt + reference(prompt, self.longest) for uid, prompt in prompts.items()}


def common_len(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def play(seed: int, num_steps: int) -> Serving:
    """One random run of at least `num_steps` steps, checked step by step and text by text."""
    rng = random.Random(seed)
    page_size = rng.choice([1, 1, 4, 16])
    serving = Serving(
        num_pages=rng.choice([24, 40, 120]) // page_size + 3,
        page_size=page_size,
        max_running_req=rng.choice([1, 3, 8]),
        max_extend_tokens=rng.choice([1, 3, 16, 64, 1000]),
        cache_type=rng.choice(["radix", "radix", "radix", "naive"]),
        overlap=rng.random() < 0.5,
        end_token_ids=END_TOKENS if rng.random() < 0.5 else frozenset(),
        reserve=rng.choice(["full", "estimate", "estimate", "stingy"]),
    )
    Play(rng, serving, salts=rng.choice([("",), ("", "a", "b")]), longest=rng.choice([9, 9, 30])).run(num_steps)
    return serving


def play_dry(seed: int, page_size: int, overlap: bool) -> Serving:
    """A run in which pages run out all the time, as nothing is reserved for what is generated."""
    rng = random.Random(seed)
    serving = Serving(
        num_pages=div_ceil(50, page_size) + 1,
        page_size=page_size,
        max_extend_tokens=rng.choice([3, 16, 1000]),
        cache_type=rng.choice(["radix", "radix", "naive"]),
        overlap=overlap,
        end_token_ids=END_TOKENS,
        reserve="stingy",
        policy=rng.choice(POLICIES.names),
        eviction=rng.choice(EVICTION_POLICIES.names),
    )
    Play(rng, serving, salts=("", "a"), longest=50).run(60)
    return serving


@pytest.mark.parametrize("overlap", [False, True], ids=["plain", "overlap"])
@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_random_schedules_in_which_pages_run_out(page_size: int, overlap: bool) -> None:
    num_retracted = sum(play_dry(seed, page_size, overlap).scheduler.stats().num_retracted for seed in range(2))
    assert num_retracted >= 10


@settings(max_examples=25, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1))
def test_random_schedules_of_sixty_steps(seed: int) -> None:
    """25 runs of 60 steps and more: 1,500 scheduler steps in the ordinary test run."""
    assert play(seed, 60).num_steps >= 60


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_random_schedules_of_twenty_thousand_steps() -> None:
    assert sum(play(seed, 200).num_steps for seed in range(100)) >= 20_000


def test_the_same_schedule_makes_the_same_batches() -> None:
    """Nothing that decides depends on a wall clock or on identities of objects."""
    first, second = ([batch_shape(f) for f in play(7, 120).engine.batches] for _ in range(2))
    assert first == second


def batch_shape(launched: object) -> list[tuple[int, int, int, int]]:
    return [(r.uid, r.table_idx, r.cached_len, r.device_len) for r in launched.batch.reqs]  # type: ignore[attr-defined]
