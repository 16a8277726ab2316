"""A scripted link whose engine goes on: every look finds more steps."""

from __future__ import annotations

from collections.abc import Container
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import msgspec
from support.scripted_link import ScriptedLink

from minisgl.llm.router import EngineDied
from minisgl.message import Activity, ActivityMsg, EngineStats, Question, RequestNow, Sizes, StepRecord
from minisgl.message.activity import pack_uids

STATS = EngineStats(
    num_running=2,
    num_waiting=1,
    num_pages=100,
    page_size=10,
    free_pages=30,
    evictable_tokens=200,
    num_finished=5,
    generated_tokens=50,
    uptime_s=100.0,
    capacity_hits=(10.0, 20.0, 30.0, 35.0, 40.0),
    capacity_queried=100,
    causes={"hit": 60, "never_seen": 20, "evicted": 0},
)


def step_at(number: int, **changes: Any) -> StepRecord:
    """The one of that number: half a second long, on a device for three quarters of it."""
    begin = 100.0 + number / 2
    record = StepRecord(
        step=number,
        begin_s=begin,
        plan_s=0.01,
        launch_s=0.02,
        wait_s=0.4,
        commit_s=0.03,
        settled_s=None,
        device_s=(begin + 0.02, begin + 0.395),
        prefills=(),
        decodes=pack_uids([1, 2]),
        arrived=(),
        admitted=(),
        retracted=(),
        finished=(),
        aborted=(),
        sizes=Sizes(300, 200, 500, 0, 2, 1),
    )
    return msgspec.structs.replace(record, **changes)


def request_now(uid: int, **changes: Any) -> RequestNow:
    request = RequestNow(
        uid=uid,
        state="decode",
        prompt_tokens=9,
        cached_tokens=4,
        done_tokens=11,
        generated_tokens=3,
        arrived_s=98.0,
        admitted_s=99.0,
        waits_for=None,
    )
    return msgspec.structs.replace(request, **changes)


class ActingLink(ScriptedLink):
    """looks: how often it was asked. steps_a_look: done between two; of them only the last `kept` are kept.

    restarts_at: the look before which another engine has taken its place. fails_at: the looks that get no answer.
    """

    def __init__(
        self, steps_a_look: int = 2, kept: int = 512, restarts_at: int | None = None, fails_at: Container[int] = ()
    ) -> None:
        super().__init__()
        self.looks = 0
        self._fails_at = fails_at
        self.requests_now = [request_now(1), request_now(2), request_now(3, state="waiting", waits_for=1)]
        self._steps_a_look, self._kept, self._restarts_at = steps_a_look, kept, restarts_at

    def ask(self, question: Question[Any]) -> Future[Any]:
        if isinstance(question, ActivityMsg):
            self.activity = self._activity(question.since)
            self.looks += 1
            if self.looks in self._fails_at:
                raise EngineDied("for now")
        return super().ask(question)

    def _activity(self, since: int) -> Activity:
        looks = self.looks
        if self._restarts_at is not None and looks >= self._restarts_at:
            looks = 0
        done = 10 + looks * self._steps_a_look
        uptime = 100.0 + looks - (50 if looks < self.looks else 0)
        stats = replace(STATS, uptime_s=uptime, num_batches=done, generated_tokens=50 + 8 * looks)
        kept = range(max(since, done - self._kept, 0), done)
        return Activity(stats, [step_at(number) for number in kept], done, self.requests_now)
