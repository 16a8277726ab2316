"""Rank 0 of several that share one model: what it plans, all compute."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from minisgl.core import BatchOutput, BatchResult, Forward, ForwardInput
from minisgl.engine.engine import Engine
from minisgl.engine.output import FailedOutput
from minisgl.llm.assembly import Model, Progress
from minisgl.llm.config import LLMConfig
from minisgl.llm.followers import LOAD_S, Followers
from minisgl.message import Inbox, RequestMsg
from minisgl.message.plans import PlanWriter

LOOK_S = 0.3  # how often an idle loop looks whether the ranks are alive


def load_on_all(model: Model, config: LLMConfig, path: Path, progress: Progress) -> tuple[Engine, Leader]:
    """Rank 0's engine, with the others loaded too. Errors of `Followers`, or ValueError."""
    progress("the other ranks")
    spec = model.spec
    followers = Followers(config, path, spec.tp.size, spec.device)
    try:
        tp = followers.join()
        progress("weights and KV pool")
        with followers.guard(LOAD_S):
            engine = model.load(tp)
    except BaseException:
        followers.close(0)
        raise
    return engine, Leader(engine, followers)


@dataclass(frozen=True, slots=True, eq=False)
class _SharedOutput:
    """A batch that all ranks compute. inner: rank 0's own output."""

    inner: BatchOutput
    followers: Followers

    def result(self) -> BatchResult:
        with self.followers.guard():
            return self.inner.result()


class Leader:
    """Sends each batch to the other ranks, then computes rank 0's part.

    Out of memory fails the batch if it befell all ranks alike, else the engine: RankDied.
    """

    def __init__(self, engine: Engine, followers: Followers) -> None:
        self._engine = engine
        self._forward: Forward = engine.forward
        self._followers = followers
        self._writer = PlanWriter()
        self._is_closed = False

    def forward(self, forward_input: ForwardInput) -> BatchOutput:
        self._followers.send(self._writer.write(forward_input.batch))
        with self._followers.guard():
            output = self._forward(forward_input)
        if isinstance(output, FailedOutput):
            self._followers.agree_on_failure(forward_input.batch.step)
        return _SharedOutput(output, self._followers)

    def watched(self, inbox: Inbox) -> Inbox:
        """The inbox; `receive` raises RankDied besides."""
        return _WatchedInbox(inbox, self._followers)

    def when_stuck(self, function: Callable[[str], None]) -> None:
        """Call it with the reason, in another thread, when the ranks have failed and rank 0 waits for its device."""
        self._followers.when_stuck = function

    def kill_ranks(self) -> None:
        """End the other ranks at once, and leave all else as it is: this process ends too."""
        self._followers.close(0)

    def close(self) -> None:
        """End the other ranks, and what is between them and this one. May be called twice."""
        if not self._is_closed:
            self._is_closed = True
            self._followers.close()
            self._engine.close()
            self._engine.spec.tp.joined.abort()


class _WatchedInbox:
    """Looks whether the ranks are alive whenever it is read, and while its reader waits."""

    def __init__(self, inbox: Inbox, followers: Followers) -> None:
        self._inbox = inbox
        self._followers = followers

    def receive(self, timeout: float | None) -> list[RequestMsg]:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            self._followers.check()
            left = LOOK_S if deadline is None else min(max(deadline - time.monotonic(), 0), LOOK_S)
            messages = self._inbox.receive(left)
            if messages or (deadline is not None and time.monotonic() >= deadline):
                return messages
