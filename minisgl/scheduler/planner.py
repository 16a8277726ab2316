"""Who computes how many tokens in the next batch: who runs, who starts, and who waits again because pages ran out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from minisgl.scheduler.admission import Admission
from minisgl.scheduler.cache_manager import CacheManager
from minisgl.scheduler.counters import Counters
from minisgl.scheduler.request import Request, RequestState
from minisgl.scheduler.reserve import Reserve
from minisgl.scheduler.retraction import Need, Promises, choose_victim
from minisgl.utils.math import div_ceil

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
        """The next batch: decodes, then prompts. Every request in it has the pages for its tokens.

        settle: commits the batch in flight. Called when pages run out, as nobody in flight can be retracted.
        """
        decodes, chunks = self._room_for_running(settle) if self._promises.adapt else self._running_work()
        prefills = self._add_new(chunks)
        self._decodes_paused = bool(decodes) and self._pauses_decodes(prefills)
        work = prefills if self._decodes_paused else decodes + prefills
        self._manager.grow([(need.allocation, need.num_pages) for need in self._needs(work)])
        return work

    def finished(self, request: Request) -> None:
        """It came to its own end: the length of its output says something of others."""
        self._promises.finished(request)

    # ---- work

    def _running_work(self) -> tuple[list[Work], list[Work]]:
        """Of all who run: one more token each, and the next parts of unfinished prompts."""
        budget = self._max_extend_tokens
        decodes: list[Work] = []
        chunks: list[Work] = []
        decode, prefill = RequestState.DECODE, RequestState.PREFILL
        for request in self._admitted.values():
            state = request.state
            if state is decode:
                if request.device_len + 1 < request.max_device_len:  # one more would sample a token that may be kept
                    decodes.append((request, 1))
            elif state is prefill:
                budget = _add_chunk(chunks, request, budget)
        return decodes, chunks

    def _add_new(self, chunks: Sequence[Work]) -> list[Work]:
        """Unfinished prompts first, then new ones, in the order in which they are admitted."""
        chosen = list(chunks)
        budget = self._max_extend_tokens - sum(num_tokens for _, num_tokens in chunks)
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

    def _room_for_running(self, settle: Callable[[], None]) -> tuple[list[Work], list[Work]]:
        """The work of all who run, and pages for it; whoever loses least gives up its own if they run out."""
        self._promises.renew(self._admitted.values())
        work = self._running_work()
        needs = self._needs(chain(*work))
        if self._promises.missing_pages(needs):
            settle()
            work = self._running_work()
            needs = self._needs(chain(*work))
        while missing := self._promises.missing_pages(needs):
            self._retract(choose_victim(self._manager, self._running(), needs, missing))
            work = self._running_work()
            needs = self._needs(chain(*work))
        self._promises.extend(needs)
        return work

    def _needs(self, work: Iterable[Work]) -> list[Need]:
        """What this work takes more pages for than its requests have."""
        page_size = self._manager.page_size
        needs: list[Need] = []
        for request, num_tokens in work:
            allocation = request.allocation
            assert allocation is not None
            num_missing = request.device_len + num_tokens - allocation.num_pages * page_size
            if num_missing > 0:
                needs.append(Need(request, allocation, div_ceil(num_missing, page_size)))
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
