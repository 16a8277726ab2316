"""The loop that `LLM.generate`, the chat and the server all drive: receive, plan, launch, commit, send."""

from __future__ import annotations

from minisgl.core import Batch, BatchOutput, Forward, ForwardInput
from minisgl.message import Inbox, Outbox, ShutdownMsg
from minisgl.scheduler.scheduler import Scheduler


class Loop:
    """Overlap is nothing but committing the previous batch after launching the next one."""

    def __init__(self, scheduler: Scheduler, forward: Forward, inbox: Inbox, outbox: Outbox, overlap: bool) -> None:
        self.scheduler = scheduler
        self.is_open = True
        self._forward = forward
        self._inbox = inbox
        self._outbox = outbox
        self._overlap = overlap
        self._launched: tuple[Batch, BatchOutput] | None = None

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
        self._receive(block=self.is_open and not self.has_work)
        previous = self._launched
        self._launch(previous[1] if previous else None)
        if not self._overlap:
            previous, self._launched = self._launched, None
        if previous is not None:
            batch, output = previous
            self.scheduler.commit(batch, output.result())
        self._outbox.send(self.scheduler.take_replies())

    def _receive(self, block: bool) -> None:
        messages = self._inbox.receive(block)
        self.scheduler.receive(messages)
        if any(isinstance(msg, ShutdownMsg) for msg in messages):
            self.is_open = False
            self.scheduler.abort_all()

    def _launch(self, previous: BatchOutput | None) -> None:
        batch = self.scheduler.plan()
        self._launched = (batch, self._forward(ForwardInput(batch, previous))) if batch else None
