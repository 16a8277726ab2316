"""The loop that `LLM.generate`, the chat and the server all drive: receive, plan, launch, commit, send."""

from __future__ import annotations

import time
from collections.abc import Callable

from minisgl.core import Batch, BatchOutput, Forward, ForwardInput
from minisgl.message import Inbox, Outbox, RequestMsg, ShutdownMsg
from minisgl.scheduler.recorder import LAUNCH, PLAN
from minisgl.scheduler.scheduler import Scheduler

IDLE_S = 1.0  # seconds without a message after which there is time to recount


class Loop:
    """Overlap is nothing but committing the previous batch after launching the next one.

    computing_s: a clock of the seconds that `forward` spends in the place of a device.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        forward: Forward,
        inbox: Inbox,
        outbox: Outbox,
        overlap: bool,
        computing_s: Callable[[], float] = float,
    ) -> None:
        self.scheduler = scheduler
        self.is_open = True
        self._forward = forward
        self._inbox = inbox
        self._outbox = outbox
        self._overlap = overlap
        self._computing_s = computing_s
        self._launched: tuple[Batch, BatchOutput] | None = None
        self._waited_s = 0.0  # for results, in this step

    @property
    def has_work(self) -> bool:
        """Whether anything is waiting, running or launched."""
        return self.scheduler.has_work or self._launched is not None

    def run(self) -> None:
        """Serve until a ShutdownMsg has come and every launched batch is committed."""
        while self.is_open or self.has_work:
            self.step()

    def step(self) -> None:
        """One turn. Waits for a message when there is nothing to do."""
        messages = self._receive()
        started, self._waited_s, computed_s = time.perf_counter(), 0.0, self._computing_s()
        turn = self.scheduler.recorder.begin(started)
        self._take_in(messages)
        batch = self.scheduler.plan(self._settle)
        if self.scheduler.has_announced:
            self._outbox.send(self.scheduler.take_replies())
        if turn is not None:
            turn.passed(PLAN)
        launched = (batch, self._forward(ForwardInput(batch, turn is not None))) if batch else None
        if turn is not None:
            turn.passed(LAUNCH)
        self._settle()
        self._launched = launched
        if not self._overlap:
            self._settle()
        self._outbox.send(self.scheduler.take_replies())
        if turn is not None:
            self.scheduler.recorder.end()
        computed_s = self._computing_s() - computed_s
        self.scheduler.count_host_time(time.perf_counter() - started - self._waited_s - computed_s)
        if self.scheduler.is_asked:  # last: tokens are out, and a device works meanwhile
            self.scheduler.work_on_answers()
            self._outbox.send(self.scheduler.take_replies())

    def _settle(self) -> None:
        """Commit the batch in flight, if there is one."""
        if self._launched is not None:
            (batch, output), self._launched = self._launched, None
            before = time.perf_counter()
            result = output.result()
            after = time.perf_counter()
            self._waited_s += after - before
            self.scheduler.commit(batch, result)
            self.scheduler.recorder.settled(batch.step, before, after, result.device_s)

    def _receive(self) -> list[RequestMsg]:
        idle = self.is_open and not self.has_work and not self.scheduler.is_asked
        return self._wait() if idle else self._inbox.receive(timeout=0)

    def _take_in(self, messages: list[RequestMsg]) -> None:
        self.scheduler.receive(messages)
        if any(isinstance(msg, ShutdownMsg) for msg in messages):
            self.is_open = False
            self.scheduler.abort_all()

    def _wait(self) -> list[RequestMsg]:
        """The next messages. All pages are recounted first, if nothing comes for a while."""
        messages = self._inbox.receive(timeout=IDLE_S)
        if not messages:
            self.scheduler.check_integrity()
            messages = self._inbox.receive(timeout=None)
        return messages
