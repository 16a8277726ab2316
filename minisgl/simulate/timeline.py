"""What happened to each simulated request and when, and what that comes to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(slots=True)
class Life:
    """Seconds on the virtual clock; None: it never came to that."""

    arrived_s: float
    admitted_s: float | None = None
    first_token_s: float | None = None
    ended_s: float | None = None


class Timeline:
    """Lives of the requests, and the use of the pool over time."""

    def __init__(self) -> None:
        self.lives: dict[int, Life] = {}
        self._page_seconds = self._waiting_seconds = self._seconds = 0.0

    def spent(self, seconds: float, num_pages: int, num_waiting: int) -> None:
        """A step took so long; meanwhile running requests held so many pages, and so many waited."""
        self._seconds += seconds
        self._page_seconds += seconds * num_pages
        self._waiting_seconds += seconds * num_waiting

    def summary(self, duration_s: float) -> dict[str, Any]:
        """Seconds. busy_s: of steps, idle time left out; means over time are over these."""
        waits = [life.admitted_s - life.arrived_s for life in self.lives.values() if life.admitted_s is not None]
        firsts = [life.first_token_s - life.arrived_s for life in self.lives.values() if life.first_token_s is not None]
        busy = max(self._seconds, 1e-12)
        return {
            "duration_s": duration_s,
            "busy_s": self._seconds,
            "mean_pages_used": self._page_seconds / busy,
            "mean_waiting": self._waiting_seconds / busy,
            "wait_s": spread(waits),
            "ttft_s": spread(firsts),
        }


def spread(values: Sequence[float]) -> dict[str, float] | None:
    """Mean, median, 99th percentile and greatest; None of nothing."""
    if not values:
        return None
    p50, p99 = np.percentile(values, (50, 99))
    return {"mean": float(np.mean(values)), "p50": float(p50), "p99": float(p99), "max": max(values)}
