"""Salts and flushes under the real scheduler: nobody joins, or waits for, what it must not see."""

from __future__ import annotations

import pytest
from support.kv_oracle import reference
from support.serving import Serving

from minisgl.core import CAUSES
from minisgl.message import EngineStats

OVERLAP = pytest.mark.parametrize("overlap", [False, True], ids=["plain", "overlap"])
PROMPT = [3 + i * 7 % 200 for i in range(41)]


def num_waiting(serving: Serving) -> int:
    return serving.scheduler.stats().num_waiting


@OVERLAP
def test_equal_prompts_of_different_salts_are_each_computed_in_full(overlap: bool) -> None:
    serving = Serving(num_pages=400, overlap=overlap)
    uids = [serving.submit(PROMPT, salt=salt) for salt in ("", "a", "b", "a")]
    serving.run()
    assert [serving.tokens[uid] for uid in uids] == [reference(PROMPT, 4)] * 4
    assert [serving.cached_len[uid] for uid in uids] == [0, 0, 0, 40]
    again = [serving.submit(PROMPT, salt=salt) for salt in ("", "a", "b", "c")]
    serving.run()
    assert [serving.cached_len[uid] for uid in again] == [40, 40, 40, 0]


@OVERLAP
def test_after_a_flush_new_requests_are_cold_and_old_ones_end_as_they_would(overlap: bool) -> None:
    serving = Serving(num_pages=400, overlap=overlap)
    old = serving.submit(PROMPT, max_tokens=30)
    for _ in range(5):
        serving.step()
    serving.flush()
    new = [serving.submit(PROMPT, max_tokens=30) for _ in range(2)]
    serving.run()
    assert [serving.tokens[uid] for uid in (old, *new)] == [reference(PROMPT, 30)] * 3
    assert [serving.cached_len[uid] for uid in new] == [0, 40]
    stats = serving.scheduler.stats()
    assert stats.evictable_tokens == len(PROMPT) + 29
    assert stats.free_pages == 400 - stats.evictable_tokens


def test_nobody_waits_for_a_prompt_from_before_the_flush() -> None:
    """It would find nothing. With overlap the prompt is still being computed when the flush comes."""
    serving = Serving(num_pages=400, overlap=True)
    leader, follower = serving.submit(PROMPT), serving.submit(PROMPT)
    serving.step()
    assert num_waiting(serving) == 1
    serving.flush()
    serving.step()
    assert num_waiting(serving) == 0
    serving.run()
    assert (serving.cached_len[leader], serving.cached_len[follower]) == (0, 0)
    assert [serving.tokens[uid] for uid in (leader, follower)] == [reference(PROMPT, 4)] * 2


@OVERLAP
def test_nobody_waits_for_what_another_salt_is_computing(overlap: bool) -> None:
    """It would learn from the wait what others have asked."""
    serving = Serving(num_pages=400, max_extend_tokens=64, overlap=overlap)
    for salt in ("", "a", "b"):
        serving.submit(PROMPT[:10], salt=salt)
    serving.step()
    assert num_waiting(serving) == 0
    serving.submit(PROMPT[:10], salt="a")
    serving.run()


def test_a_flush_of_an_idle_cache_frees_every_page() -> None:
    serving = Serving()
    serving.generate([PROMPT, PROMPT[:9]])
    serving.flush()
    serving.step()
    assert serving.manager.num_free_pages == 64


def test_statistics_count_what_happened() -> None:
    serving = Serving(num_pages=64, max_running_req=2)
    serving.generate([PROMPT, PROMPT], max_tokens=4)
    serving.submit([5] * 100)  # larger than the pool
    serving.abort(serving.submit([7] * 10, max_tokens=9))
    other = serving.submit([9] * 50, max_tokens=4)  # evicts
    serving.run()
    stats = serving.scheduler.stats()
    assert serving.tokens[other] == reference([9] * 50, 4)
    wanted = EngineStats(
        num_pages=64,
        free_pages=64 - stats.evictable_tokens,
        evictable_tokens=64,
        queried_tokens=2 * 41 + 50,
        hit_tokens=40,
        evicted_tokens=53 - (64 - 44),
        computed_tokens=41 + 1 + 50,
        generated_tokens=4 + 4 + 4,
        num_finished=3,
        num_aborted=1,
        num_failed=1,
        num_batches=stats.num_batches,
        host_s=stats.host_s,
        uptime_s=stats.uptime_s,
        causes=dict.fromkeys(CAUSES, 0) | {"never_seen": 41 + 50, "joined": 40, "last_token": 1},
    )
    assert stats == wanted
    assert stats.uptime_s > 0


def test_the_first_reply_says_how_long_a_request_waited() -> None:
    serving = Serving(max_running_req=1)
    first, second = serving.submit(PROMPT, max_tokens=5), serving.submit(PROMPT[:3], max_tokens=2)
    serving.run()
    waits = serving.queue_s
    assert 0 <= waits[first] < waits[second]
