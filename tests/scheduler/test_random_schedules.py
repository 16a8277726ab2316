"""Random arrivals, shared prefixes, aborts, stops and tiny pools; all pages are recounted after every step."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.kv_oracle import reference
from support.serving import Serving

END_TOKENS = frozenset(range(3, 12))


def play(seed: int, num_steps: int) -> Serving:
    """One random run of at least `num_steps` steps; every text is checked against the uncached one."""
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
    )
    prompts: dict[int, list[int]] = {}
    cut: dict[int, int] = {}  # uid -> tokens after which a stop string was "found"
    while serving.num_steps < num_steps:
        for _ in range(rng.choice([0, 0, 0, 1, 1, 3])):
            arrive(rng, serving, prompts)
        if rng.random() < 0.2 and prompts:
            serving.abort(rng.choice(list(prompts)))
        if rng.random() < 0.2:
            stop_one(rng, serving, cut)
        serving.step()
    serving.run()
    for uid, ids in prompts.items():
        check_text(serving, uid, ids, cut.get(uid))
    return serving


def arrive(rng: random.Random, serving: Serving, prompts: dict[int, list[int]]) -> None:
    old = rng.choice(list(prompts.values())) if prompts and rng.random() < 0.7 else []
    ids = old[: rng.randint(0, len(old))] + [rng.choice([20, 21]) for _ in range(rng.randint(1, 24))]
    prompts[serving.submit(ids, max_tokens=rng.randint(1, 9))] = ids


def stop_one(rng: random.Random, serving: Serving, cut: dict[int, int]) -> None:
    running = [uid for uid, out in serving.tokens.items() if out and uid not in serving.finished and uid not in cut]
    if running:
        uid = rng.choice(running)
        cut[uid] = rng.randint(1, len(serving.tokens[uid]))
        serving.finish(uid, cut[uid])


def check_text(serving: Serving, uid: int, ids: list[int], cut: int | None) -> None:
    end_tokens = serving.scheduler.end_token_ids
    wanted = reference(ids, 9, end_tokens)
    got = serving.tokens[uid]
    reply = serving.finished.get(uid)
    assert got == wanted[: len(got)]
    if cut is not None:
        assert len(got) >= cut
    elif reply is None:
        raise AssertionError(f"uid {uid} was never answered")
    elif reply.finish_reason == "stop":
        assert got[-1] in end_tokens
    else:
        assert reply.finish_reason in ("length", "abort", "error")


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
