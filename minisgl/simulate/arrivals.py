"""When requests come: at the trace's times, faster or slower, and perhaps not before what they answer to has ended."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from minisgl.simulate.workload import Item


class Arrivals:
    """Requests that have not come yet, by their index in the workload."""

    def __init__(self, items: Sequence[Item], scale: float = 1.0, *, sessions: bool = False) -> None:
        """scale: seconds for one of the trace; 0 has all of them come at once.

        sessions: a request comes at its time, but not before the one before it in its session has ended.
        """
        self._times = [item.request.arrival_s * scale for item in items]
        self._due: list[tuple[float, int]] = []
        self._followers: dict[int, int] = {}  # by the index of the request that they wait for
        last: dict[object, int] = {}
        for index, item in enumerate(items):
            session = item.request.session
            if sessions and session is not None and session in last:
                self._followers[last[session]] = index
            else:
                heappush(self._due, (self._times[index], index))
            last[session] = index

    @property
    def next_s(self) -> float | None:
        """When the next one comes; None if nobody is known to."""
        return self._due[0][0] if self._due else None

    def take(self, now: float) -> list[tuple[float, int]]:
        """(seconds, index) of those that have come by now."""
        taken = []
        while self._due and self._due[0][0] <= now:
            taken.append(heappop(self._due))
        return taken

    def ended(self, index: int, now: float) -> None:
        """A request is over: the next one of its session may come."""
        follower = self._followers.pop(index, None)
        if follower is not None:
            heappush(self._due, (max(now, self._times[follower]), follower))
