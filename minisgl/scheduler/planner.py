"""Who computes how many tokens in the next batch: who runs, who starts, and who waits again because pages ran out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from minisgl.scheduler.admission import Admission
from minisgl.scheduler.allocation import Allocation
from minisgl.scheduler.cache_manager import CacheManager
from minisgl.scheduler.counters import Counters
from minisgl.scheduler.request import Request, RequestState
from minisgl.scheduler.reserve import Reserve
from minisgl.scheduler.retraction import Growth, Promises, choose_victim

Work = tuple[Request, Allocation, int]  # a running request, what it holds, and how many of its tokens are computed


class Part:
    """Decodes or prompts of a batch, and the pages for them. Gathered in one go: most steps have hundreds of decodes.

    growths: of those that have too few pages. short: those of them that were promised too few as well.
    """

    __slots__ = ("_page_size", "growths", "short", "work")

    def __init__(self, page_size: int) -> None:
        self.work: list[Work] = []
        self.growths: list[Growth] = []
        self.short: list[Request] = []
        self._page_size = page_size

    def add(self, requests: Sequence[Request], num_tokens: int) -> None:
        """Compute so many tokens more of each of these running requests."""
        work, growths, page_size = self.work, self.growths, self._page_size
        for request in requests:
            allocation = request.allocation
            assert allocation is not None
            work.append((request, allocation, num_tokens))
            held = allocation.num_pages
            num_missing = request.device_len + num_tokens - held * page_size
            if num_missing > 0:
                num_pages = -(-num_missing // page_size)
                growths.append((allocation, num_pages))
                if held + num_pages > allocation.promised_pages:
                    self.short.append(request)

    def add_prompt(self, request: Request, budget: int) -> int:
        """Compute what the budget allows of its prompt; what is left of the budget."""
        num_tokens = min(budget, request.prefill_len - request.device_len)
        if num_tokens > 0:
            self.add([request], num_tokens)
        return budget - num_tokens


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
        decodes, prefills = self._room_for_running(settle) if self._promises.adapt else self._running_work()
        self._add_new(prefills)
        self._decodes_paused = bool(decodes.work) and self._pauses_decodes(prefills)
        if self._decodes_paused:
            decodes = Part(self._manager.page_size)
        self._manager.grow(decodes.growths + prefills.growths)
        return decodes.work + prefills.work

    def finished(self, request: Request) -> None:
        """It came to its own end: the length of its output says something of others."""
        self._promises.finished(request)

    # ---- work

    def _running_work(self) -> tuple[Part, Part]:
        """Of all who run: one more token each, and the next parts of unfinished prompts."""
        budget, page_size = self._max_extend_tokens, self._manager.page_size
        decodes, chunks = Part(page_size), Part(page_size)
        decode, prefill = RequestState.DECODE, RequestState.PREFILL
        going_on = []
        for request in self._admitted.values():
            state = request.state
            if state is decode:
                if request.device_len + 1 < request.max_device_len:  # one more would sample a token that may be kept
                    going_on.append(request)
            elif state is prefill:
                budget = chunks.add_prompt(request, budget)
        decodes.add(going_on, 1)
        return decodes, chunks

    def _add_new(self, prefills: Part) -> None:
        """New prompts after the unfinished ones, in the order in which they are admitted."""
        budget = self._max_extend_tokens - sum(num_tokens for _, _, num_tokens in prefills.work)
        if budget > 0:
            for request in self._admission.admit():
                self._admitted[request.uid] = request
                if request.num_admissions == 1:
                    self._counters.admitted(request)
                budget = prefills.add_prompt(request, budget)
                if budget == 0:
                    break

    def _pauses_decodes(self, prefills: Part) -> bool:
        """Whether this batch is prompts alone: they all end in it, nobody waits, and decodes ran just before."""
        if not prefills.work or not self._alternates or self._decodes_paused or self._admission:
            return False
        return all(request.device_len + num_tokens == request.prefill_len for request, _, num_tokens in prefills.work)

    # ---- pages

    def _room_for_running(self, settle: Callable[[], None]) -> tuple[Part, Part]:
        """The work of all who run, and pages for it; whoever loses least gives up its own if they run out."""
        self._promises.renew(self._admitted.values())
        decodes, chunks = self._running_work()
        if self._promises.missing_pages(decodes.growths + chunks.growths):
            settle()
            decodes, chunks = self._running_work()
            while missing := self._promises.missing_pages(growths := decodes.growths + chunks.growths):
                self._retract(choose_victim(self._manager, self._running(), growths, missing))
                decodes, chunks = self._running_work()
        self._promises.extend(decodes.short + chunks.short)
        return decodes, chunks

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
