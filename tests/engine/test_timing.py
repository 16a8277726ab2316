"""When a device worked for a batch, on the host's clock. The events are a device's whose clock goes wrong."""

from __future__ import annotations

import pytest

from minisgl.core import BatchResult
from minisgl.engine import timing
from minisgl.engine.timing import DeviceTimer, HostTimer, TimedOutput
from minisgl.utils.arrays import NO_IDS


class Clock:
    now = 0.0

    def perf_counter(self) -> float:
        return self.now


class Event:
    """Passes when the device comes to it: at `at` on the host's clock; its own is `rate` times as fast."""

    rate = 1.0

    def __init__(self, clock: Clock, at: float) -> None:
        self.clock, self.at = clock, at

    def synchronize(self) -> None:
        self.clock.now = max(self.clock.now, self.at)

    def elapsed_time(self, later: Event) -> float:
        return (later.at - self.at) * self.rate * 1000


class Output:
    def result(self) -> BatchResult:
        return BatchResult(NO_IDS)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(timing, "time", clock)
    return clock


def run(timer: DeviceTimer, clock: Clock, monkeypatch: pytest.MonkeyPatch, launched: float, end: float) -> TimedOutput:
    """A batch that was launched then, when the device began it, and is done at `end`."""
    events = [Event(clock, launched)] * (timer._last is None) + [Event(clock, launched), Event(clock, end)]
    monkeypatch.setattr(timing, "_mark", lambda: events.pop(0))
    clock.now = launched
    ended = timer.begin()
    return TimedOutput(Output(), ended())


def test_a_batch_has_the_device_s_times(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    timer = DeviceTimer()
    for step in range(3):
        output = run(timer, clock, monkeypatch, launched=step, end=step + 0.5)
        clock.now = step + 0.75
        assert output.result().device_s == pytest.approx((step, step + 0.5))


@pytest.mark.parametrize("rate", [0.9, 1.1])
def test_clocks_that_drift_apart_do_not_part(clock: Clock, monkeypatch: pytest.MonkeyPatch, rate: float) -> None:
    monkeypatch.setattr(Event, "rate", rate)
    timer, last = DeviceTimer(), 0.0
    for step in range(100):
        launched = float(step)
        begin, end = run(timer, clock, monkeypatch, launched, launched + 0.5).result().device_s or (0, 0)
        assert last <= begin <= end <= clock.now
        assert begin == pytest.approx(launched, abs=0.2)
        assert end == pytest.approx(launched + 0.5, abs=0.2)
        last = end


def test_a_host_that_computes_has_the_times_of_the_launch(clock: Clock) -> None:
    clock.now = 3.0
    ended = HostTimer().begin()
    clock.now = 5.0
    output = TimedOutput(Output(), ended())
    clock.now = 9.0
    assert output.result().device_s == (3.0, 5.0)
