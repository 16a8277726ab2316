"""The trace says what the engine did, in the form that Perfetto reads."""

from __future__ import annotations

import json
import logging
import os
import threading
from pathlib import Path

import pytest
from support.acting_link import step_at
from support.chrome_trace import arrows_of, check_trace, of, read_trace, slices_of, states_of
from support.needs import FULL_DEVICE
from support.serving import Serving

from minisgl.core import BatchOutput, BatchResult, ForwardInput
from minisgl.message import RequestNow
from minisgl.message.activity import State, pack_uids
from minisgl.scheduler.trace import Trace
from minisgl.scheduler.trace import check_trace as check_path
from minisgl.scheduler.trace_events import TraceEvents


def traced(serving: Serving, path: Path) -> Trace:
    trace = Trace(str(path), pool_tokens=serving.manager.num_pages)
    serving.scheduler.recorder.send_to(trace.put)
    return trace


class TimedOutput:
    """The device begins with the launch, and is done when it is asked for the result."""

    def __init__(self, output: BatchOutput, began: float) -> None:
        self.output, self.began = output, began

    def result(self) -> BatchResult:
        return BatchResult(self.output.result().next_tokens, device_s=(self.began, self.began + 1e-6))


@pytest.mark.parametrize("overlap", [False, True], ids=["plain", "overlap"])
@pytest.mark.parametrize("reserve", ["full", "stingy"])
def test_any_run_gives_a_trace_that_can_be_read(tmp_path: Path, overlap: bool, reserve: str) -> None:
    serving = Serving(num_pages=24, max_extend_tokens=4, overlap=overlap, reserve=reserve)
    trace = traced(serving, tmp_path / "trace.json")
    serving.generate([[1, 2, 3, 4, 5, 6], [1, 2, 3, 9], [20, 21], [20, 22, 23], [30]], max_tokens=6)
    trace.close()
    events = read_trace(tmp_path / "trace.json")
    check_trace(events)
    slices = slices_of(events)
    steps = serving.scheduler.stats().num_batches
    assert sum(each["name"] == "launch" for each in slices["host"]) == steps
    assert sum(each["name"] == "commit" for each in slices["scheduler"]) >= steps
    for uid in range(5):
        states = [state for state, _, _ in states_of(events, uid)]
        assert states[:3] == ["waiting", "prefill", "decode"]
        assert [phase for phase, _ in arrows_of(events, uid)][-1] == "f"
    if reserve == "stingy":
        assert serving.scheduler.stats().num_retracted > 0
        assert any([state for state, _, _ in states_of(events, uid)].count("waiting") > 1 for uid in range(5))


def test_an_arrow_goes_through_every_part_of_a_prompt_and_the_first_decode(tmp_path: Path) -> None:
    serving = Serving(max_extend_tokens=2)
    trace = traced(serving, tmp_path / "trace.json")
    serving.generate([[1, 2, 3, 4, 5]], max_tokens=4)
    trace.close()
    arrows = arrows_of(read_trace(tmp_path / "trace.json"), 0)
    assert arrows == [("s", "plan"), *[("t", "launch")] * 4, ("f", "commit")]


def test_batches_are_named_by_what_they_hold(tmp_path: Path) -> None:
    serving = Serving(max_extend_tokens=4)
    trace = traced(serving, tmp_path / "trace.json")
    now = iter(range(1000))

    def forward(forward_input: ForwardInput) -> BatchOutput:
        return TimedOutput(serving.engine.forward(forward_input), serving.scheduler.recorder.started_at + next(now))

    serving.loop._forward = forward
    serving.generate([[1, 2, 3, 4, 5, 6], [20, 21]], max_tokens=3)
    trace.close()
    events = read_trace(tmp_path / "trace.json")
    device = slices_of(events)["device"]
    assert [each["name"] for each in device] == ["prefill 4", "prefill 4", "decode 2", "decode 2"]
    assert device[1]["args"]["prefills"] == ["request 0: 4..6", "request 1: 0..2"]
    assert device[2]["args"]["decoding"] == [0, 1]
    pool = [event["args"] for event in of(events, "C") if event["name"] == "pool tokens"]
    assert all(sum(each.values()) == 64 for each in pool)
    assert pool[-1]["in use"] == 0
    assert pool[-1]["cached"] > 0


def test_a_trace_that_breaks_off_can_be_read_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    serving = Serving()
    trace = traced(serving, path)
    serving.generate([[1, 2, 3]])
    trace._write_all()  # as its thread does from time to time
    with pytest.raises(json.JSONDecodeError):
        json.loads(path.read_text())
    check_trace(read_trace(path))
    trace.close()
    trace.close()
    assert json.loads(path.read_text()) == read_trace(path)


def test_requests_that_are_not_over_end_with_the_trace(tmp_path: Path) -> None:
    serving = Serving()
    trace = traced(serving, tmp_path / "trace.json")
    serving.submit([1, 2, 3], max_tokens=9)
    for _ in range(3):
        serving.step()
    trace.close()
    events = read_trace(tmp_path / "trace.json")
    assert len(of(events, "b")) == len(of(events, "e")) == 4


def open_already(uid: int, state: State) -> RequestNow:
    sizes = {"prompt_tokens": 9, "cached_tokens": 0, "done_tokens": 9, "generated_tokens": 1, "waits_for": None}
    return RequestNow(uid=uid, state=state, arrived_s=1.0, admitted_s=None if state == "waiting" else 2.5, **sizes)


def test_requests_that_were_there_before_have_tracks_from_the_first_step_in_the_state_that_they_had() -> None:
    states: list[State] = ["waiting", "prefill", "decode"]
    made = TraceEvents(1000)
    names = list(made.beginning([open_already(uid, state) for uid, state in enumerate(states, 1)]))
    steps = [step_at(4, decodes=pack_uids([3]), prefills=((2, 4, 8),)), step_at(5, decodes=pack_uids([2, 3]))]
    events = [*names, *(event for step in steps for event in made.of(step)), *made.end()]
    check_trace(events)
    begin = steps[0].begin_s * 1e6
    assert [states_of(events, uid)[0][:2] for uid in (1, 2, 3)] == [(state, begin) for state in states]
    assert [[state for state, *_ in states_of(events, uid)] for uid in (1, 2, 3)] == [
        ["waiting"],
        ["prefill", "decode"],
        ["decode"],
    ]


def test_of_a_first_step_that_was_under_way_nothing_is_told_twice() -> None:
    made = TraceEvents(1000)
    names = list(made.beginning([open_already(1, "decode"), open_already(2, "prefill"), open_already(3, "decode")]))
    step = step_at(
        4, decodes=b"", prefills=((1, 0, 9), (2, 0, 4), (3, 4, 9)), arrived=((1, 101.9, 9),), admitted=(1, 2)
    )
    events = [*names, *made.of(step), *made.end()]
    check_trace(events)
    assert [[state for state, *_ in states_of(events, uid)] for uid in (1, 2, 3)] == [
        ["waiting", "prefill"],
        ["waiting", "prefill"],
        ["prefill"],
    ]


def test_a_disk_that_is_full_ends_the_trace_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving = Serving()
    trace = traced(serving, tmp_path / "trace.json")

    def write(events: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(trace._file, "write", write)
    with caplog.at_level(logging.WARNING):
        assert serving.generate([[1, 2, 3]])
        trace.close()
    assert "the trace breaks off" in caplog.text
    assert "the trace lacks" in caplog.text


@FULL_DEVICE
def test_a_trace_that_finds_no_room_names_its_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "trace.json").symlink_to("/dev/full")
    serving = Serving()
    trace = traced(serving, tmp_path / "trace.json")
    assert serving.generate([[1, 2, 3]])
    trace.close()
    assert f"the trace breaks off: [Errno 28] No space left on device: '{tmp_path / 'trace.json'}'" in caplog.text


def test_a_disk_that_has_stopped_is_not_waited_for_to_no_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minisgl.scheduler.trace.CLOSED_WITHIN_S", 0.01)
    goes_on, trace = threading.Event(), Trace(str(tmp_path / "trace.json"), 64)
    monkeypatch.setattr(trace._file, "end", goes_on.wait)
    with caplog.at_level(logging.WARNING):
        trace.close()
    assert "was not written within" in caplog.text
    goes_on.set()
    trace._thread.join()


def test_requests_whose_end_may_be_among_lost_steps_end_there_and_go_on_when_they_are_seen() -> None:
    made = TraceEvents(1000)
    events = [*made.of(step_at(0, decodes=pack_uids([1, 2, 3])))]
    events += [*made.of(step_at(8, decodes=pack_uids([2]), prefills=((3, 0, 4),))), *made.end()]
    check_trace([*made.beginning(), *events])
    assert [state for state, _, _ in states_of(events, 1)] == ["decode"]
    assert [state for state, _, _ in states_of(events, 2)] == ["decode"] * 2
    assert [state for state, _, _ in states_of(events, 3)] == ["decode", "prefill"]
    assert states_of(events, 1)[-1][-1] < states_of(events, 2)[-1][1]


def test_two_traces_do_not_share_a_file_and_one_may_follow_another(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    trace = Trace(str(path), 64)
    with pytest.raises(OSError, match="another trace is being written there"):
        Trace(str(path), 64)
    trace.close()
    before = path.read_text()
    Trace(str(path), 64).close()
    assert path.read_text() == before
    Trace("/dev/null", 64).close()


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="this is a pipe, not a file"):
        check_path(str(tmp_path / "pipe"))


def test_a_file_that_cannot_be_written_is_an_error_that_names_the_option(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere" / "trace.json"):
        with pytest.raises(ValueError, match=r"^trace='.*': "):
            check_path(str(path))
    path = tmp_path / "there.json"
    path.write_text("kept")
    check_path(str(path))
    assert path.read_text() == "kept"


def test_a_turn_without_a_batch_launches_nothing_however_long_it_took_to_see_that() -> None:
    events = list(TraceEvents(1000).of(step_at(0, decodes=b"", device_s=None)))
    assert [event["name"] for event in of(events, "X")] == ["plan", "wait", "commit"]


def test_results_that_were_waited_for_in_the_midst_of_planning_stand_there() -> None:
    made = TraceEvents(1000)
    events = [*made.beginning(), *made.of(step_at(0, settled_s=0.004))]
    check_trace(events)
    named = sorted(of(events, "X"), key=lambda event: event["ts"])
    names = [event["name"] for event in named if event["tid"] in (1, 2)]
    assert names == ["plan", "wait", "commit", "plan", "launch"]
