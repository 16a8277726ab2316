from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.server_app import make_state

from minisgl.core import Explanation
from minisgl.llm.explained import Window
from minisgl.server import observer as module
from minisgl.server.config import ServerConfig
from minisgl.server.explaining import Reasons
from minisgl.server.records import RequestRecord
from minisgl.server.state import ServerState


class Clock:
    """Stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "perf_counter", clock)
    return clock


def delta(*token_ids: int, choice: int = 0, index: int = 0, cached_tokens: int = 0) -> Any:
    return {"index": index, "choice": choice, "token_ids": list(token_ids), "cached_tokens": cached_tokens}


def output(finish_reason: str, num_tokens: int, queue_s: float | None = None) -> Any:
    timings = {"total_s": 1.0, "queue_s": queue_s}
    return {"finish_reason": finish_reason, "token_ids": [1] * num_tokens, "timings": timings}


def follow(state: ServerState, clock: Clock, *prompt_lens: int) -> tuple[module.Observer, RequestRecord]:
    record = RequestRecord("req-1", "POST", "/v1/completions", started=clock.now, status=200)
    state.book.open(record)
    observer = state.observe()
    prompts: list[Any] = [SimpleNamespace(input_ids=[7] * length) for length in prompt_lens]
    observer.started("req-1", "/v1/completions", prompts)
    return observer, record


def test_the_first_token_counts_from_the_requests_arrival_and_the_others_from_the_one_before(clock: Clock) -> None:
    state = make_state()
    observer, record = follow(state, clock, 5)
    for gap, tokens in ((0.5, [1]), (0.03, [2]), (0.06, [3, 4])):
        clock.now += gap
        observer.deltas([delta(*tokens, cached_tokens=4)])
    observer.finished("ok", [output("stop", 4, queue_s=0.25)])
    state.book.close(record)
    metrics = state.metrics
    assert (metrics.first_token_s.count, metrics.first_token_s.total) == (1, 0.5)
    assert (metrics.token_gap_s.count, metrics.token_gap_s.total) == (3, pytest.approx(0.09))
    assert (record.prompt_tokens, record.cached_tokens, record.generated_tokens) == (5, 4, 4)
    assert (record.first_token_s, record.queue_s, record.finish_reason) == (0.5, 0.25, "stop")
    assert (metrics.prompt_tokens, metrics.generated_tokens) == (5, 4)
    assert (metrics.queue_s.count, metrics.total_s.count) == (1, 1)


def test_the_time_in_the_queue_is_known_of_a_request_that_never_ended(clock: Clock) -> None:
    state = make_state()
    observer, record = follow(state, clock, 5)
    observer.deltas([{**delta(1), "queue_s": 0.25}, {**delta(1, choice=1), "queue_s": 0.5}, delta(2)])
    observer.finished("disconnect", [])
    state.book.close(record)
    assert record.queue_s == 0.5
    assert (state.metrics.queue_s.count, state.metrics.queue_s.total) == (1, 0.5)


def test_choices_and_prompts_are_told_apart(clock: Clock) -> None:
    state = make_state()
    observer, record = follow(state, clock, 5, 7)
    clock.now += 1
    observer.deltas([delta(1, choice=0, cached_tokens=4), delta(1, choice=1, cached_tokens=4)])
    clock.now += 1
    observer.deltas([delta(2, choice=1), delta(1, index=1, cached_tokens=6), delta()])
    choices = [output("length", 1), output("stop", 2)]
    observer.finished("ok", [{**choices[0], "choices": choices}, output("stop", 1)])
    assert (state.metrics.first_token_s.count, state.metrics.token_gap_s.count) == (1, 1)
    assert (record.prompt_tokens, record.cached_tokens, record.generated_tokens) == (12, 10, 4)
    assert record.finish_reason == "length,stop"
    assert state.metrics.finished == {"length": 1, "stop": 2}


@pytest.mark.parametrize("ending", ["disconnect", "timeout", "abort", "error"])
def test_a_request_that_did_not_finish_is_counted_with_what_it_generated(ending: Any, clock: Clock) -> None:
    state = make_state()
    observer, record = follow(state, clock, 5)
    observer.deltas([delta(1), delta(2)])
    observer.finished(ending, [])
    assert (record.finish_reason, record.generated_tokens, record.queue_s) == (ending, 2, None)
    assert state.metrics.aborted == {ending: 1}
    assert not state.metrics.finished


def test_a_request_that_failed_before_its_first_token_has_none(clock: Clock) -> None:
    state = make_state()
    observer, record = follow(state, clock, 5)
    observer.finished("error", [])
    assert record.first_token_s is None
    assert state.metrics.first_token_s.count == 0


def test_the_admission_is_noted_whenever_it_comes_and_once_for_each_prompt(clock: Clock) -> None:
    """Before the first token or with it; of a prompt with several choices the first one's."""
    state = make_state()
    observer, record = follow(state, clock, 5, 7)
    observer.numbered((8, 9, 10, 11))
    early = {"queue_s": 0.25, "explanation": Explanation(hit=4, never_seen=1, left_at=4).facts()}
    observer.deltas([{**delta(), **early}, {**delta(choice=1), **early, "queue_s": 0.5}])
    assert (record.reasons, record.queue_s) == (Reasons(Explanation(hit=4, never_seen=1).causes), 0.5)  # no position
    observer.deltas([delta(1), {**delta(1, index=1), "explanation": Explanation(never_seen=7).facts()}])
    assert record.reasons is not None
    assert {cause: tokens for cause, tokens in record.reasons.causes.items() if tokens} == {"hit": 4, "never_seen": 8}
    assert (record.uids, record.reasons.window) == ((8, 9, 10, 11), None)


def test_the_tokens_around_are_kept_only_where_texts_may_be_shown(clock: Clock) -> None:
    found = Explanation(hit=4, never_seen=96, left_at=4, branch=(1, 2))
    for shows in (False, True):
        state = make_state(ServerConfig(ui_show_text=shows))
        record = RequestRecord("req-1")
        state.book.open(record)
        observer = state.observe()
        prompts: list[Any] = [SimpleNamespace(input_ids=np.arange(100, dtype=np.int32))]
        observer.started("req-1", "/generate", prompts)
        observer.deltas([{**delta(), "explanation": found.facts()}])
        assert record.reasons is not None
        assert record.reasons.window == (Window(tuple(range(12)), 4, (1, 2)) if shows else None)
        assert len(str(record)) < 1000
