"""Who computes how many tokens in the next batch: who runs, who starts, and who waits again because pages ran out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from minisgl.scheduler.admission import Admission
from minisgl.scheduler.cache_manager import CacheManager
from minisgl.scheduler.counters import Counters
from minisgl.scheduler.request import Request, RequestState
from minisgl.scheduler.reserve import Reserve
from minisgl.scheduler.retraction import Need, Promises, choose_victim

Work = tuple[Request, int]  # a running request, and how many of its tokens are computed


class Planner:
    """Chooses the work of each batch, so that the pages for it are there.

    admitted: the scheduler's, in order of admission; those that start are added, those that are retracted removed.
    max_extend_tokens, alternates: as the scheduler's.
    """

    def __init__(
        self,
        manager: CacheManager,
        admission: Admission,
        admitted: dict[int, Request],
        counters: Counters,
        reserve: Reserve,
        max_extend_tokens: int,
        alternates: bool,
    ) -> None:
        self._manager = manager
        self._admission = admission
        self._admitted = admitted
        self._counters = counters
        self._promises = Promises(manager, reserve)
        self._max_extend_tokens = max_extend_tokens
        self._alternates = alternates
        self._decodes_paused = False

    def choose(self, settle: Callable[[], None]) -> list[Work]:
        """The next batch: decodes, then prompts. Every request in it has promised pages that are free or evictable.

        settle: commits the batch in flight. Called when pages run out, as nobody in flight can be retracted.
        """
        if self._promises.adapt:
            self._make_room(settle)
        prefills = self._choose_prefills()
        decodes = self._decodes()
        self._decodes_paused = bool(decodes) and self._pauses_decodes(prefills)
        return prefills if self._decodes_paused else decodes + prefills

    def finished(self, request: Request) -> None:
        """It came to its own end: the length of its output says something of others."""
        self._promises.finished(request)

    # ---- work

    def _decodes(self) -> list[Work]:
        return [(request, 1) for request in self._admitted.values() if request.wants_token]

    def _chunks(self) -> tuple[list[Work], int]:
        """The next parts of unfinished prompts, and how many tokens are left for others."""
        budget = self._max_extend_tokens
        chosen: list[Work] = []
        for request in self._admitted.values():
            if request.state is RequestState.PREFILL:
                budget = _add_chunk(chosen, request, budget)
        return chosen, budget

    def _choose_prefills(self) -> list[Work]:
        """Unfinished prompts first, then new ones, in the order in which they are admitted."""
        chosen, budget = self._chunks()
        if budget > 0:
            for request in self._admission.admit():
                self._admitted[request.uid] = request
                if request.num_admissions == 1:
                    self._counters.admitted(request)
                budget = _add_chunk(chosen, request, budget)
                if budget == 0:
                    break
        return chosen

    def _pauses_decodes(self, prefills: Sequence[Work]) -> bool:
        """Whether this batch is prompts alone: they all end in it, nobody waits, and decodes ran just before."""
        if not prefills or not self._alternates or self._decodes_paused or self._admission:
            return False
        return all(request.device_len + num_tokens == request.prefill_len for request, num_tokens in prefills)

    # ---- pages

    def _make_room(self, settle: Callable[[], None]) -> None:
        """Pages for the next token or chunk of all who run; whoever loses least gives up its own if they run out."""
        self._promises.renew(self._admitted.values())
        needs = self._needs()
        if self._promises.missing_pages(needs):
            settle()
            needs = self._needs()
        while missing := self._promises.missing_pages(needs):
            self._retract(choose_victim(self._manager, self._running(), needs, missing))
            needs = self._needs()
        self._promises.extend(needs)

    def _needs(self) -> list[Need]:
        """What those who run need more than they have."""
        needs: list[Need] = []
        for request, num_tokens in self._decodes() + self._chunks()[0]:
            assert request.allocation is not None
            num_pages = self._manager.new_pages(request.allocation, request.device_len + num_tokens)
            if num_pages:
                needs.append(Need(request, request.allocation, num_pages))
        return needs

    def _running(self) -> list[Request]:
        return [request for request in self._admitted.values() if request.is_running]

    def _retract(self, request: Request) -> None:
        """What it has computed stays cached while there is room; it goes on from there as soon as it fits again."""
        assert request.allocation is not None
        del self._admitted[request.uid]
        self._manager.release(request.allocation, request.ids(request.committed_len))
        request.retract()
        self._admission.add_first(request)
        self._promises.retracted()
        self._counters.num_retracted += 1


def _add_chunk(chosen: list[Work], request: Request, budget: int) -> int:
    """Add what of its prompt the budget allows; what is left of the budget."""
    num_tokens = min(budget, request.prefill_len - request.device_len)
    if num_tokens > 0:
        chosen.append((request, num_tokens))
    return budget - num_tokens
