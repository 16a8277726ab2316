"""Questions of the tokenizer's side, answered between two steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from support.serving import Serving

from minisgl.message import CountReply, ProbeMsg, PurgeMsg, Question, StatsMsg, StatsReply
from minisgl.scheduler.config import SchedulerConfig

PROMPT = list(range(1, 13))


def ids(tokens: Sequence[int]) -> np.ndarray:
    return np.array(tokens, np.int32)


def answer(serving: Serving, question: Question[Any]) -> Any:
    serving.scheduler.receive([question])
    (reply,) = serving.scheduler.take_replies()
    assert isinstance(reply, StatsReply if isinstance(question, StatsMsg) else CountReply)
    assert reply.uid == question.uid
    serving.scheduler.check_integrity()
    return reply.answer


@pytest.mark.parametrize("page_size", [1, 4])
def test_a_probe_tells_what_a_request_would_find_and_never_its_last_token(page_size: int) -> None:
    serving = Serving(page_size=page_size)
    serving.generate([PROMPT], max_tokens=1)
    for prompt in (PROMPT, PROMPT[:9], [*PROMPT, 20, 21], [*PROMPT[:6], 30, 31], [40]):
        found = answer(serving, ProbeMsg(1, ids(prompt)))
        uid = serving.submit(prompt, 1)
        serving.run()
        assert serving.cached_len[uid] == found
    assert answer(serving, ProbeMsg(1, ids(PROMPT))) == (11 if page_size == 1 else 8)


def test_a_probe_is_counted_nowhere() -> None:
    serving = Serving()
    serving.generate([PROMPT])
    before = answer(serving, StatsMsg(1))
    answer(serving, ProbeMsg(2, ids(PROMPT)))
    after = answer(serving, StatsMsg(3))
    assert (after.queried_tokens, after.hit_tokens, after.num_finished) == (12, 0, 1)
    assert (after.queried_tokens, after.evictable_tokens) == (before.queried_tokens, before.evictable_tokens)


def test_a_purge_is_of_one_salt_or_of_all_and_tells_what_it_freed() -> None:
    serving = Serving()
    for salt in ("", "a", "b"):
        serving.submit(PROMPT, 1, salt)
    serving.run()
    found = {salt: ProbeMsg(1, ids(PROMPT), salt) for salt in ("", "a", "b")}
    assert answer(serving, PurgeMsg(2, ids([1, 2]), "a")) == 12
    assert [answer(serving, probe) for probe in found.values()] == [11, 0, 11]
    assert answer(serving, PurgeMsg(2, ids([]), "")) == 12
    assert [answer(serving, probe) for probe in found.values()] == [0, 0, 11]
    assert answer(serving, PurgeMsg(2, ids([]))) == 12
    assert [answer(serving, probe) for probe in found.values()] == [0, 0, 0]


def test_what_a_running_request_holds_is_freed_with_its_end() -> None:
    serving = Serving()
    uid = serving.submit(PROMPT, 4)
    serving.step()
    assert answer(serving, PurgeMsg(1, ids([1]), "")) == 0
    assert answer(serving, ProbeMsg(2, ids(PROMPT))) == 0
    serving.run()
    assert len(serving.tokens[uid]) == 4
    assert serving.manager.num_free_pages == serving.manager.num_pages


def test_statistics_are_recounted_on_demand() -> None:
    serving = Serving()
    serving.generate([PROMPT])
    serving.manager._reserved += 1
    serving.scheduler.receive([StatsMsg(1)])
    with pytest.raises(AssertionError, match="reserved"):
        serving.scheduler.receive([StatsMsg(2, recount=True)])


def test_priorities_are_heeded_where_order_or_eviction_goes_by_them() -> None:
    heeding = [{"policy": "priority"}, {"eviction": "priority"}, {"policy": "priority", "cache_type": "naive"}]
    deaf: list[dict[str, Any]] = [{}, {"policy": "lpm"}, {"cache_type": "naive"}]
    assert [SchedulerConfig(**config).heeds_priority for config in [*heeding, *deaf]] == [True] * 3 + [False] * 3


@pytest.mark.parametrize("given", [{"eviction": "lfu"}, {"eviction": "priority"}, {"lookahead": 0}, {"lookahead": 9}])
def test_what_only_a_cache_would_heed_is_refused_with_the_naive_one(given: dict[str, Any]) -> None:
    ((name, value),) = given.items()
    with pytest.raises(ValueError, match=f"{name}={value!r} does nothing with cache_type='naive'"):
        SchedulerConfig(cache_type="naive", **given)
