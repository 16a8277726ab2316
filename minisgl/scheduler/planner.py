"""Who computes how many tokens in the next batch: who runs, who starts, and who waits again because pages ran out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from minisgl.scheduler.admission import Admission
from minisgl.scheduler.cache_manager import CacheManager
from minisgl.scheduler.counters import Counters
from minisgl.scheduler.growth import Growth
from minisgl.scheduler.recorder import Recorder
from minisgl.scheduler.request import Request, RequestState
from minisgl.scheduler.reserve import Reserve
from minisgl.scheduler.retraction import Promises, choose_victim
from minisgl.scheduler.work import NOBODY, Lineup, Prompt, Work


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
        recorder: Recorder,
        reserve: Reserve,
        max_extend_tokens: int,
        alternates: bool,
    ) -> None:
        self._manager = manager
        self._admission = admission
        self._admitted = admitted
        self._counters = counters
        self._recorder = recorder
        self._promises = Promises(manager, reserve)
        self._max_extend_tokens = max_extend_tokens
        self._alternates = alternates
        self._decodes_paused = False
        self._decodes = NOBODY
        self._prefills: list[Request] = []  # whose prompts are unfinished
        self._has_changed = False  # who is in these two

    def choose(self, settle: Callable[[], None]) -> Work:
        """The next batch: decodes, then prompts. Every request in it has the pages for its tokens.

        settle: commits the batch in flight. Called when pages run out, as nobody in flight can be retracted.
        """
        running, growth = self._room_for_running(settle) if self._promises.adapt else self._running_work()
        work = self._with_new(running)
        self._manager.grow(growth if work is running else self._growth(work))
        if work.prompts:
            self.changed()
        return work

    def changed(self) -> None:
        """One that runs starts to decode, or runs no more."""
        self._has_changed = True

    def finished(self, request: Request) -> None:
        """It came to its own end: the length of its output says something of others."""
        self._promises.finished(request)

    # ---- work

    def _running_work(self) -> tuple[Work, Growth]:
        """Of all who run: one more token each, and the next parts of unfinished prompts. Most steps change nobody."""
        if self._has_changed:
            self._sort_running()
        rows, table_idxs = self._manager.rows, self._decodes.table_idxs
        # One token more than that would sample one that may not be kept.
        self._decodes = self._decodes.kept(rows.device_len[table_idxs] + 1 < rows.max_device_len[table_idxs])
        work = Work.of(self._decodes, list(self._parts(self._prefills, self._max_extend_tokens)))
        return work, self._growth(work)

    def _sort_running(self) -> None:
        """Whose prompts are done begins to decode, after those that do, and who is over or waits again leaves."""
        going_on = [request.state is RequestState.DECODE for request in self._decodes.requests]
        started = [request for request in self._prefills if request.state is RequestState.DECODE]
        self._decodes = self._decodes.kept(np.array(going_on, np.bool_))
        if started:
            self._decodes += Lineup.of(started)
        self._prefills = [request for request in self._prefills if request.state is RequestState.PREFILL]
        self._has_changed = False

    def _with_new(self, running: Work) -> Work:
        """New prompts after the unfinished ones, in the order in which they are admitted; maybe without decodes."""
        budget = self._max_extend_tokens - sum([num_tokens for _, num_tokens in running.prompts])
        new = list(self._parts(self._admitted_now(), budget)) if budget and self._admission else []
        prompts = running.prompts + new
        self._decodes_paused = len(self._decodes) > 0 and self._pauses_decodes(prompts)
        if self._decodes_paused:
            return Work.of(NOBODY, prompts)
        return Work.of(self._decodes, prompts) if new else running

    def _parts(self, requests: Iterable[Request], budget: int) -> Iterator[Prompt]:
        """What the budget allows of their prompts."""
        for request in requests:
            num_tokens = min(budget, request.prefill_len - request.device_len)
            budget -= num_tokens
            if num_tokens > 0:
                yield request, num_tokens
            if budget == 0:
                return

    def _admitted_now(self) -> Iterator[Request]:
        for request in self._admission.admit():
            self._admitted[request.uid] = request
            self._prefills.append(request)
            self._recorder.admitted(request.uid)
            if request.num_admissions == 1:
                self._counters.admitted(request)
            yield request

    def _pauses_decodes(self, prompts: list[Prompt]) -> bool:
        """Whether this batch is prompts alone: they all end in it, nobody waits, and decodes ran just before."""
        if not prompts or not self._alternates or self._decodes_paused or self._admission:
            return False
        return all(request.device_len + num_tokens == request.prefill_len for request, num_tokens in prompts)

    # ---- pages

    def _growth(self, work: Work) -> Growth:
        return self._manager.growth(work.lineup.table_idxs, work.counts)

    def _room_for_running(self, settle: Callable[[], None]) -> tuple[Work, Growth]:
        """The work of all who run, and pages for it; whoever loses least gives up its own if they run out."""
        if self._admission:  # else there is nobody for whom promises leave more or less room
            self._promises.renew(self._admitted.values())
        work, growth = self._running_work()
        if self._promises.missing_pages(growth):
            settle()
            work, growth = self._running_work()
            while missing := self._promises.missing_pages(growth):
                self._retract(choose_victim(self._manager, self._running(), growth, missing))
                work, growth = self._running_work()
        self._promises.extend([self._whose(table_idx) for table_idx in growth.short(self._manager.rows).tolist()])
        return work, growth

    def _whose(self, table_idx: int) -> Request:
        """The running request that has this row of the page table."""
        return self._admitted[int(self._manager.rows.uid[table_idx])]

    def _running(self) -> list[Request]:
        return [request for request in self._admitted.values() if request.is_running]

    def _retract(self, request: Request) -> None:
        """What it has computed stays cached while there is room; it goes on from there as soon as it fits again."""
        assert request.allocation is not None
        del self._admitted[request.uid]
        ids = request.ids(request.committed_len)
        self._counters.released(request, ids)
        self._manager.release(request.allocation, ids)
        request.retract()
        self.changed()
        self._admission.add_first(request)
        self._promises.retracted()
        self._counters.num_retracted += 1
        self._recorder.retracted(request.uid)
