"""Nobody is overtaken for ever."""

from __future__ import annotations

from collections import OrderedDict
from heapq import heappop, heappush

from minisgl.scheduler.waiting import Waiting


class Ageing:
    """Knows the oldest waiting request, and how many that came later were admitted before it.

    No other is overtaken more often: who overtook a younger one overtook the oldest too. Of the requests that arrived
    before the oldest, all have left, so the count follows from three totals and nobody's own count is kept.
    """

    def __init__(self, max_overtakes: int) -> None:
        self._max_overtakes = max_overtakes
        self._waiting: OrderedDict[int, Waiting] = OrderedDict()  # by number, so in order of arrival
        self._num_admitted = 0
        self._gave_up: list[int] = []  # a heap: numbers later than the oldest of those that left without being admitted
        self._num_gave_up = 0  # before the oldest

    def add(self, waiting: Waiting) -> None:
        """Numbers must grow."""
        self._waiting[waiting.number] = waiting

    def remove(self, waiting: Waiting, admitted: bool) -> None:
        del self._waiting[waiting.number]
        if admitted:
            self._num_admitted += 1
        else:
            heappush(self._gave_up, waiting.number)

    @property
    def aged(self) -> Waiting | None:
        """The oldest, if it must be next: nobody may overtake it any more."""
        if not self._waiting:
            return None
        oldest = next(iter(self._waiting.values()))
        return oldest if self._overtakes(oldest.number) >= self._max_overtakes else None

    def _overtakes(self, oldest: int) -> int:
        """Admissions so far of requests later than `oldest`: all but those of earlier ones."""
        while self._gave_up and self._gave_up[0] < oldest:
            heappop(self._gave_up)
            self._num_gave_up += 1
        return self._num_admitted - (oldest - self._num_gave_up)
