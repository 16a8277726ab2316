"""The loop keeps account of what the host works for a step."""

from __future__ import annotations

import pytest
from support.kv_oracle import OracleOutput
from support.serving import Serving

from minisgl.core import BatchOutput, BatchResult, ForwardInput
from minisgl.message import RequestMsg, TreeMsg, TreeReply
from minisgl.scheduler import loop
from minisgl.scheduler.loop import Loop


class Clock:
    """Stands still but when told."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


def test_what_a_host_computes_in_the_place_of_a_device_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    serving, clock, computing = Serving(overlap=False), Clock(), Clock()
    monkeypatch.setattr(loop, "time", clock)

    def forward(forward_input: ForwardInput) -> BatchOutput:
        clock.now += 50
        computing.now += 47
        return serving.engine.forward(forward_input)

    parts = serving.scheduler, forward, serving.inbox, serving.outbox, False
    serving.loop = Loop(*parts, computing_s=computing.perf_counter)
    serving.generate([[5, 6, 7]], max_tokens=4)
    stats = serving.scheduler.stats()
    assert stats.num_batches >= 4
    assert stats.host_s == 3 * stats.num_batches


class SlowOutput:
    def __init__(self, output: OracleOutput, clock: Clock) -> None:
        self.output, self.clock = output, clock

    def result(self) -> BatchResult:
        self.clock.now += 100
        return self.output.result()


class SlowInbox:
    def __init__(self, serving: Serving, clock: Clock) -> None:
        self.inbox, self.clock = serving.inbox, clock

    def receive(self, timeout: float | None) -> list[RequestMsg]:
        self.clock.now += 1000
        return self.inbox.receive(timeout)


@pytest.mark.parametrize("overlap", [False, True], ids=["plain", "overlap"])
def test_the_hosts_time_is_that_of_the_launches_and_not_of_waiting(
    monkeypatch: pytest.MonkeyPatch, overlap: bool
) -> None:
    serving, clock = Serving(overlap=False), Clock()
    monkeypatch.setattr(loop, "time", clock)

    def forward(forward_input: ForwardInput) -> BatchOutput:
        clock.now += 2
        output = serving.engine.forward(forward_input)
        assert isinstance(output, OracleOutput)
        return SlowOutput(output, clock)

    serving.loop = Loop(serving.scheduler, forward, SlowInbox(serving, clock), serving.outbox, overlap)
    serving.generate([[5, 6, 7]], max_tokens=4)
    stats = serving.scheduler.stats()
    assert stats.num_batches >= 4
    assert stats.host_s == 2 * stats.num_batches


class ImpatientInbox:
    """Nothing more comes: whoever waits for it would wait for ever."""

    def __init__(self, messages: list[RequestMsg]) -> None:
        self.messages = messages

    def receive(self, timeout: float | None) -> list[RequestMsg]:
        assert timeout == 0 or self.messages, "the loop waits"
        messages, self.messages = self.messages, []
        return messages


def test_a_question_that_takes_several_steps_is_answered_though_nothing_else_comes() -> None:
    serving = Serving()
    inbox = ImpatientInbox([TreeMsg(7, None, 10, 0)])
    serving.loop = Loop(serving.scheduler, serving.forward, inbox, serving.outbox, overlap=False)
    answers: list[object] = []
    for _ in range(10):
        if not answers:
            serving.loop.step()
            answers = serving.outbox.receive(timeout=0)
    assert [type(answer) for answer in answers] == [TreeReply]
