"""Pages for all who run: what each is promised, and who gives up its own when they do not suffice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from minisgl.scheduler.cache_manager import CacheManager
from minisgl.scheduler.growth import Growth
from minisgl.scheduler.request import Request
from minisgl.scheduler.reserve import Reserve

MAX_RENEWED = 32  # promises that one step brings up to date, so that each end does not cost a look at all who run


class Promises:
    """Keeps what is promised to running requests in step with what is learned of outputs.

    adapt: whether promises change at all. If not, they are for all that is ever needed, and pages never run out.
    """

    def __init__(self, manager: CacheManager, reserve: Reserve) -> None:
        self._manager = manager
        self._reserve = reserve
        self._outdated = False
        self._to_renew: list[Request] = []
        self.adapt = reserve.adapts

    def finished(self, request: Request) -> None:
        """It came to its own end."""
        self._reserve.finished(request)
        self._outdated = True

    def retracted(self) -> None:
        """The pages did not suffice."""
        self._reserve.retracted()
        self._outdated = True

    def renew(self, admitted: Iterable[Request]) -> None:
        """Promise those that run what is known to be likely now, if that has changed: in turn, some at each step."""
        if self._outdated and not self._to_renew:
            self._to_renew = list(admitted)
            self._outdated = False
        for request in self._to_renew[-MAX_RENEWED:]:
            if request.is_running:
                self._promise(request)
        del self._to_renew[-MAX_RENEWED:]

    def missing_pages(self, growth: Growth) -> int:
        """How many pages too few are free or evictable for `growth`."""
        return max(0, growth.total - self._manager.obtainable_pages)

    def extend(self, short: Iterable[Request]) -> None:
        """Promise more to those who need more than they were promised."""
        for request in short:
            self._promise(request)

    def _promise(self, request: Request) -> None:
        assert request.allocation is not None
        self._manager.promise(request.allocation, self._reserve.kv_len(request))


def choose_victim(manager: CacheManager, running: Sequence[Request], growth: Growth, missing: int) -> Request:
    """The request that loses least: the fewest pages that nobody else holds, and that may have to be computed again.

    It is one of those with whose pages the others can go on (they lack `missing`); if there are none, the one that
    helps most; of equals the latest. running: in order of admission. Who arrived first is never chosen, whenever it was
    admitted: so it comes to its end, and then the next one does.
    """
    assert len(running) > 1, f"{missing} pages are missing for the only request that runs"
    wanted = dict(zip(growth.table_idxs.tolist(), (growth.wanted - growth.held).tolist(), strict=True))
    oldest = min(running, key=lambda request: request.arrival)
    candidates = [request for request in running if request is not oldest]
    held = [request.allocation for request in candidates if request.allocation]
    best, victim = (False, -1), candidates[-1]
    for request, allocation, loss in zip(candidates, held, manager.sole_pages(held), strict=True):
        relief = loss + wanted.get(allocation.table_idx, 0)
        rank = (True, -loss) if relief >= missing else (False, relief)
        if rank >= best:
            best, victim = rank, request
    return victim
