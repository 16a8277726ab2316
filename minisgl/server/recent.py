"""Quantiles of about the last minute, of histograms that count since the start: the counts of then are subtracted."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping

from minisgl.server.histogram import Histogram

LOOK_BACK_S = 60.0
APART_S = 5.0  # between two notes of the counts
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
Counts = dict[str, tuple[int, ...]]


class Recent:
    """Notes the counts from time to time, when somebody comes by. Belongs to the event loop's thread."""

    def __init__(self, histograms: Mapping[str, Histogram]) -> None:
        self._histograms = histograms
        self._notes: deque[tuple[float, Counts]] = deque([(time.monotonic(), self._counts())])

    def note(self) -> None:
        """To be called often: with every request that ends, say."""
        now = time.monotonic()
        if now - self._notes[-1][0] >= APART_S:
            self._notes.append((now, self._counts()))
            while len(self._notes) > 1 and now - self._notes[1][0] >= LOOK_BACK_S:
                self._notes.popleft()

    def spreads(self) -> dict[str, dict[str, float] | None]:
        """By name of the histogram: QUANTILES, or None if nothing was observed."""
        self.note()
        before = self._notes[0][1]
        return {name: _spread(histogram, before[name]) for name, histogram in self._histograms.items()}

    def _counts(self) -> Counts:
        return {name: histogram.counts() for name, histogram in self._histograms.items()}


def _spread(histogram: Histogram, before: tuple[int, ...]) -> dict[str, float] | None:
    values = histogram.quantiles(QUANTILES.values(), before)
    return None if values is None else dict(zip(QUANTILES, values, strict=True))
