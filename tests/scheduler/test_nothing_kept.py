"""Clients that come with a salt, a priority, a uid and stop tokens that nobody had before leave nothing for ever."""

from __future__ import annotations

import random

import pytest
from support.kv_oracle import VOCAB
from support.reachable import num_reachable
from support.serving import Serving

from minisgl.core import CAPACITY_FACTORS
from minisgl.kvcache import first_pages, ghost_list
from minisgl.kvcache.capacity_curve import CapacityCurve
from minisgl.kvcache.eviction import EVICTION_POLICIES, lazy_heap, places
from minisgl.scheduler.ordering import POLICIES

EACH_ROUND = 200  # requests
PAGES = 24


def serve_strangers(serving: Serving, rng: random.Random) -> None:
    """Requests of which none is like another one; a part of them is aborted, some while they wait."""
    for number in range(EACH_ROUND):
        uid = serving.submit(
            [rng.randrange(VOCAB) for _ in range(9)],
            max_tokens=rng.randint(1, 4),
            salt=f"{rng.getrandbits(64):x}" if number % 3 else "",
            priority=rng.getrandbits(20),
            explain=number % 5 == 0,
            stop_token_ids=[rng.randrange(VOCAB) for _ in range(3)],
        )
        if number % 4 == 0:
            serving.abort(uid)
        if number % 7 == 0:
            serving.step()
        if number % 100 == 0:
            serving.purge([], f"{rng.getrandbits(64):x}")
    serving.run()
    serving.flush()
    serving.run()


@pytest.mark.parametrize("eviction", EVICTION_POLICIES.names)
def test_strangers_leave_nothing_in_the_cache(eviction: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_nothing_is_kept(monkeypatch, eviction=eviction)


@pytest.mark.parametrize("policy", POLICIES.names)
def test_strangers_leave_nothing_in_the_queue(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_nothing_is_kept(monkeypatch, policy=policy, overlap=True)


def check_nothing_is_kept(monkeypatch: pytest.MonkeyPatch, **options: str | bool) -> None:
    monkeypatch.setattr(first_pages, "MAX_PAGES", 8)  # filled before it is first counted
    for module, name in ((places, "_FEW"), (lazy_heap, "_FEW"), (ghost_list, "FEW")):
        monkeypatch.setattr(module, name, 2)  # what is out of date, and waits to be swept out
    curve = CapacityCurve(PAGES, max_followed=8 * len(CAPACITY_FACTORS))
    serving, rng = Serving(num_pages=PAGES, ghost_tokens=PAGES, curve=curve, **options), random.Random(0)  # type: ignore[arg-type]
    kept = []
    for _ in range(3):
        serve_strangers(serving, rng)
        kept.append(num_reachable(serving.scheduler))
    assert kept[2] - kept[1] < EACH_ROUND / 4, f"objects after each {EACH_ROUND} requests: {kept}"


def test_a_token_that_ended_an_earlier_request_is_no_longer_looked_for() -> None:
    """It would keep others' rows from being taken in at once."""
    strangers_end, kept = list(range(VOCAB - 50, VOCAB)), []
    for stop_token_ids in (strangers_end[:0], strangers_end):
        serving = Serving()
        stranger = serving.submit([1, 2, 3], 4, stop_token_ids=stop_token_ids)
        serving.submit([1, 2, 4], 4)
        serving.abort(stranger)
        serving.run()
        kept.append(num_reachable(serving.scheduler))
    assert kept[0] == kept[1]
