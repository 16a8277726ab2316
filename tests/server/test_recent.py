from __future__ import annotations

import pytest

from minisgl.server import recent
from minisgl.server.histogram import Histogram
from minisgl.server.metrics import LATENCY_S
from minisgl.server.recent import Recent


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(recent, "time", clock)
    return clock


def test_what_came_more_than_a_minute_ago_counts_no_more(clock: Clock) -> None:
    histogram = Histogram(LATENCY_S)
    latest = Recent({"x": histogram})
    assert latest.spreads() == {"x": None}
    histogram.observe(10.0, 100)
    for _ in range(20):
        clock.now += 10
        latest.note()
    histogram.observe(0.1, 100)
    spread = latest.spreads()["x"]
    assert spread is not None
    assert list(spread) == ["p50", "p90", "p99"]
    assert spread["p99"] == pytest.approx(0.1, rel=0.1)
    clock.now += 61
    assert latest.spreads() == {"x": spread}  # nobody had come by meanwhile
    clock.now += 61
    assert latest.spreads() == {"x": None}


def test_notes_do_not_pile_up(clock: Clock) -> None:
    latest = Recent({"x": Histogram(LATENCY_S)})
    for _ in range(10_000):
        clock.now += 0.5
        latest.note()
    assert len(latest._notes) <= recent.LOOK_BACK_S / recent.APART_S + 2
