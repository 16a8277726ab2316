"""What the loop did turn by turn is kept while somebody asks for it, and adds up."""

from __future__ import annotations

import pytest
from support.serving import Serving

from minisgl.core import BatchOutput, BatchResult, ForwardInput
from minisgl.message import Activity, ActivityMsg, ActivityReply, StepRecord
from minisgl.message.activity import uids_of
from minisgl.scheduler import loop, recorder
from minisgl.scheduler.loop import Loop


def activity(serving: Serving, since: int = 0) -> Activity:
    serving.scheduler.receive([ActivityMsg(7, since)])
    (reply,) = serving.scheduler.take_replies()
    assert isinstance(reply, ActivityReply)
    assert reply.uid == 7
    return reply.answer


def recorded(serving: Serving, prompts: list[list[int]], max_tokens: int = 4) -> list[StepRecord]:
    activity(serving)
    serving.generate(prompts, max_tokens)
    return activity(serving).steps


class Clock:
    """Stands still but when told."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


class SlowOutput:
    def __init__(self, output: BatchOutput, clock: Clock) -> None:
        self.output, self.clock = output, clock

    def result(self) -> BatchResult:
        self.clock.now += 5
        return self.output.result()


def with_clock(serving: Serving, monkeypatch: pytest.MonkeyPatch, overlap: bool) -> Clock:
    """A launch takes 2 s, waiting for its results 5."""
    clock = Clock()
    monkeypatch.setattr(loop, "time", clock)
    monkeypatch.setattr(recorder, "time", clock)

    def forward(forward_input: ForwardInput) -> BatchOutput:
        clock.now += 2
        return SlowOutput(serving.engine.forward(forward_input), clock)

    serving.loop = Loop(serving.scheduler, forward, serving.inbox, serving.outbox, overlap)
    return clock


@pytest.mark.parametrize("overlap", [False, True], ids=["plain", "overlap"])
def test_the_parts_of_a_turn_are_what_it_took(monkeypatch: pytest.MonkeyPatch, overlap: bool) -> None:
    serving = Serving()
    clock = with_clock(serving, monkeypatch, overlap)
    serving.scheduler.recorder.started_at = 0.0
    steps = recorded(serving, [[5, 6, 7]])
    at = 0.0
    for step in steps:
        assert (step.begin_s, step.plan_s, step.commit_s) == (at, 0, 0)
        at += step.launch_s + step.wait_s
    assert at == clock.now
    assert sum(step.launch_s for step in steps) == 2 * 4
    assert sum(step.wait_s for step in steps) == 5 * 4
    assert [step.launch_s for step in steps] == ([2, 2, 2, 2, 0] if overlap else [2, 2, 2, 2])
    assert [step.wait_s for step in steps] == ([0, 5, 5, 5, 5] if overlap else [5] * 4)


@pytest.mark.parametrize("overlap", [False, True], ids=["plain", "overlap"])
def test_a_request_is_followed_from_its_arrival_to_its_end(overlap: bool) -> None:
    serving = Serving(max_extend_tokens=4, overlap=overlap)
    steps = recorded(serving, [[1, 2, 3, 4, 5, 6], [20, 21]], max_tokens=3)
    assert [(uid, length) for step in steps for uid, _, length in step.arrived] == [(0, 6), (1, 2)]
    assert [step.admitted for step in steps][:2] == [(0,), (1,)]
    assert [step.prefills for step in steps][:2] == [((0, 0, 4),), ((0, 4, 6), (1, 0, 2))]
    decodes = [uid for step in steps for uid in uids_of(step.decodes)]
    assert sorted(decodes) == [0, 0, 1, 1]
    assert sorted(uid for step in steps for uid in step.finished) == [0, 1]
    assert [step.step for step in steps] == list(range(len(steps)))
    assert steps[0].sizes.num_waiting == 1
    assert steps[-1].sizes.num_running == steps[-1].sizes.num_waiting == 0
    assert steps[-1].sizes.free_tokens + steps[-1].sizes.evictable_tokens == 64


def test_nothing_is_recorded_before_somebody_asks_and_long_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    serving = Serving()
    clock = with_clock(serving, monkeypatch, overlap=False)
    serving.generate([[5, 6, 7]])
    first = activity(serving)
    assert (first.steps, first.next_step) == ([], 0)
    serving.generate([[5, 6, 8]], max_tokens=1)
    clock.now += recorder.KEPT_S
    assert serving.scheduler.recorder.begin(clock.now) is None
    serving.generate([[5, 6, 9]], max_tokens=1)
    assert activity(serving, 1).steps == []
    serving.generate([[5, 6, 10]], max_tokens=1)
    later = activity(serving, 1).steps
    assert [step.step for step in later] == [2]  # that 1 is missing says that something is


def test_only_what_is_new_is_answered_and_the_oldest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    serving = Serving()
    monkeypatch.setattr(serving.scheduler.recorder, "_kept", recorder.deque(maxlen=3))
    steps = recorded(serving, [[5, 6, 7]], max_tokens=5)
    assert [step.step for step in steps] == [2, 3, 4]
    again = activity(serving, 4)
    assert ([step.step for step in again.steps], again.next_step) == ([4], 5)
    assert activity(serving, 5).steps == []


def test_under_overlap_a_step_is_answered_once_its_batch_is_committed() -> None:
    serving = Serving(overlap=True)
    activity(serving)
    serving.submit([5, 6, 7], max_tokens=2)
    serving.step()
    before = activity(serving)
    assert (before.steps, before.next_step) == ([], 0)
    serving.step()
    after = activity(serving)
    assert ([step.step for step in after.steps], after.next_step) == ([0], 1)
    serving.run()


class TimedOutput:
    def __init__(self, output: BatchOutput, span: tuple[float, float]) -> None:
        self.output, self.span = output, span

    def result(self) -> BatchResult:
        result = self.output.result()
        return BatchResult(result.next_tokens, device_s=self.span)


@pytest.mark.parametrize("overlap", [False, True], ids=["plain", "overlap"])
def test_a_step_has_the_times_of_its_own_batch(overlap: bool) -> None:
    serving = Serving(overlap=overlap)
    was_timed = []

    def forward(forward_input: ForwardInput) -> BatchOutput:
        was_timed.append(forward_input.is_timed)
        step = float(forward_input.batch.step)
        return TimedOutput(serving.engine.forward(forward_input), (step, step + 0.5))

    serving.loop = Loop(serving.scheduler, forward, serving.inbox, serving.outbox, overlap)
    serving.scheduler.recorder.started_at = 0.0
    serving.submit([5, 6, 7], max_tokens=4)
    serving.step()  # a batch that nobody had looked at yet when it was launched
    activity(serving)
    serving.run()
    steps = activity(serving).steps
    assert [step.device_s for step in steps if step.decodes] == [(1, 1.5), (2, 2.5), (3, 3.5)]
    assert [step.device_s for step in steps if not step.decodes] == ([None] if overlap else [])
    assert was_timed == [False, True, True, True]


def test_a_retraction_is_told_with_the_planning_before_it() -> None:
    serving = Serving(num_pages=12, reserve="stingy", overlap=True)
    steps = recorded(serving, [[1, 2, 3, 4], [11, 12, 13, 14]], max_tokens=6)
    settled = [step for step in steps if step.settled_s is not None]
    assert any(step.retracted for step in settled)
    assert all(0 <= (step.settled_s or 0) <= step.plan_s for step in settled)
    for uid in {uid for step in steps for uid in step.retracted}:
        assert sum(step.admitted.count(uid) for step in steps) == 1 + sum(step.retracted.count(uid) for step in steps)
    evicted = serving.scheduler.stats().evicted_tokens
    assert sum(step.sizes.evicted_tokens for step in steps) == evicted


def test_an_aborted_request_has_ended() -> None:
    serving = Serving(max_running_req=1)
    activity(serving)
    serving.submit([5, 6, 7], max_tokens=8)
    waiting = serving.submit([8, 9], max_tokens=8)
    serving.step()
    serving.abort(waiting)
    serving.run()
    steps = activity(serving).steps
    assert [uid for step in steps for uid in step.aborted] == [waiting]
    assert sorted(uid for step in steps for uid in step.finished) == [0, waiting]


def test_requests_are_told_with_what_they_are_at() -> None:
    serving = Serving(max_running_req=2, max_extend_tokens=8)
    serving.generate([[5, 6, 7, 8]], max_tokens=1)
    serving.submit([5, 6, 7, 8, 9], max_tokens=8)
    serving.step()
    serving.submit(list(range(20, 40)), max_tokens=8)
    serving.submit([10, 11, 12], max_tokens=8)
    serving.step()
    decode, prefill, waiting = activity(serving).requests
    assert (decode.uid, decode.state, decode.prompt_tokens, decode.cached_tokens) == (1, "decode", 5, 4)
    assert (decode.done_tokens, decode.generated_tokens) in {(5, 1), (6, 2)}
    assert (prefill.uid, prefill.state, prefill.done_tokens, prefill.generated_tokens) == (2, "prefill", 8, 0)
    assert (waiting.uid, waiting.state, waiting.done_tokens, waiting.waits_for) == (3, "waiting", 0, None)
    assert waiting.admitted_s is None
    assert 0 <= decode.arrived_s <= (decode.admitted_s or 0) <= prefill.arrived_s <= waiting.arrived_s
    serving.run()
    assert activity(serving).requests == []


def test_one_that_waits_for_another_says_for_whom() -> None:
    serving = Serving(num_pages=128, max_extend_tokens=64, overlap=True)
    prompt = list(range(1, 61))
    serving.submit(prompt, max_tokens=1)
    serving.submit([*prompt, 70], max_tokens=1)
    serving.step()
    requests = activity(serving).requests
    assert [(request.uid, request.waits_for) for request in requests] == [(0, None), (1, 0)]
    serving.run()


def test_records_say_nothing_that_decides() -> None:
    plain, watched = Serving(num_pages=16, reserve="stingy"), Serving(num_pages=16, reserve="stingy")
    activity(watched)
    prompts = [[i, i + 1, i + 2, i + 3] for i in range(1, 12, 3)]
    assert watched.generate(prompts, 6) == plain.generate(prompts, 6)
    assert watched.num_steps == plain.num_steps


def test_what_was_evicted_before_the_first_question_is_of_no_step() -> None:
    serving = Serving(num_pages=12)
    for first in range(1, 40, 8):
        serving.generate([list(range(first, first + 8))], max_tokens=1)
    assert serving.scheduler.stats().evicted_tokens > 0
    before = serving.scheduler.stats().evicted_tokens
    steps = recorded(serving, [[50]], max_tokens=1)
    assert (
        sum(step.sizes.evicted_tokens for step in steps) == serving.scheduler.stats().evicted_tokens - before < before
    )


def test_a_turn_in_which_nothing_happens_is_no_step() -> None:
    serving = Serving()
    activity(serving)
    serving.step()
    assert activity(serving).next_step == 0


def test_who_is_over_but_in_flight_runs_no_more() -> None:
    serving = Serving(overlap=True)
    uid = serving.submit([5, 6, 7], max_tokens=8)
    serving.step()
    assert [request.uid for request in activity(serving).requests] == [uid]
    serving.scheduler.abort_all()
    serving.scheduler.take_replies()
    assert activity(serving).requests == []
    serving.run()
