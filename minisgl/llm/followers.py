"""The processes of ranks 1 and up, as rank 0 has them: all of them compute, or none is left.

Plans go out over a socket to each rank and never wait for it. A thread watches: whichever rank dies, runs out of memory
alone or waits too long for another one ends them all, and `check` and `guard` then say why in rank 0.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from minisgl.distributed import Meeting, RankGroup, TPInfo
from minisgl.llm.config import LLMConfig
from minisgl.llm.lifeline import remove
from minisgl.llm.rank_children import running_ranks
from minisgl.message import ShutdownMsg
from minisgl.message.plans import (
    BatchFailed,
    GoOnMsg,
    JoinMsg,
    RankFailed,
    RankNews,
    RankOrder,
    RankStarted,
    order_codec,
)
from minisgl.utils.logging import get_logger

POLL_S = 0.1  # how soon a death is noticed
AGREE_S = 3.0  # how long ranks may differ about whether a batch had memory
STUCK_S = 300.0  # a step that takes longer waits for a rank that will never come
START_S = 300.0  # the same for importing torch and reading the configuration
LOAD_S = 3600.0  # how long one rank may load after another
END_S = 5.0  # how long a rank may take to end
NOTICE_S = 10.0  # how long rank 0 may take to notice, once what it waits for has been ended
logger = get_logger(__name__)


class RankDied(RuntimeError):  # noqa: N818 - it is news, not a mistake
    """A rank is gone or of no use, and so is the engine. Its text says which and why."""


class Followers:
    """Starts ranks 1 .. size - 1 for the model at `path`; returns when all have read their configuration.

    Raises as they do: ValueError for what the user can mend, else RankDied; OSError when one cannot be started. The
    kernel kills them when the thread that made this ends. when_stuck: called with the reason, in another thread, when
    the ranks have failed and rank 0 has not noticed for NOTICE_S seconds: its device does not answer.
    """

    def __init__(self, config: LLMConfig, path: Path, size: int, device: torch.device) -> None:
        self.size, self.device = size, device
        self._codec = order_codec()
        self._stack = contextlib.ExitStack()
        self._failure: Exception | None = None
        self._failed = threading.Event()
        self._noticed = threading.Event()
        self.when_stuck: Callable[[str], None] = logger.critical
        self._is_closing = False
        self._deadline: float | None = None  # of what rank 0 is at
        self._group: RankGroup | None = None
        self._unsettled: dict[int, dict[int, tuple[int, float]]] = {}  # step -> rank -> collectives, when it came
        self._watcher = threading.Thread(target=self._watch, name="minisgl-ranks", daemon=True)
        try:
            children = self._stack.enter_context(running_ranks(config, path, size))
            self._followers, self._inbox = children.ranks, children.inbox
            self._wait_until_started()
            remove(children.folder)  # connections need no names
        except BaseException:
            self._stack.close()
            raise
        self._watcher.start()

    def join(self) -> TPInfo:
        """Meet the others: rank 0's place among them."""
        meeting = Meeting(timeout_s=START_S)
        self.send(JoinMsg(meeting.port))
        with self.guard():
            self._group = meeting.join(0, self.size, self.device, LOAD_S)
        return TPInfo(0, self.size, self._group)

    def send(self, order: RankOrder) -> None:
        """To every rank, without waiting."""
        frame = self._codec.encode([order])
        for follower in self._followers:
            if not follower.outbox.offer(frame):
                self._failed.wait(AGREE_S)  # it is dead, most likely, and the watcher knows better
                self.check()
                raise RankDied(f"rank {follower.rank} takes no more plans")

    def check(self) -> None:
        """Raises why the ranks cannot go on, if they cannot."""
        if self._failure is not None:
            self._noticed.set()
            raise self._failure

    @contextlib.contextmanager
    def guard(self, timeout_s: float = STUCK_S) -> Iterator[None]:
        """For what waits for other ranks: an error of theirs is raised instead of what it led to here.

        timeout_s: when to give up.
        """
        self._deadline = time.monotonic() + timeout_s
        try:
            yield
        except Exception:
            self._failed.wait(AGREE_S)
            self.check()
            raise
        finally:
            self._deadline = None
        self.check()

    def agree_on_failure(self, step: int) -> None:
        """Rank 0 had no memory for this step: they go on if no other rank had, and all stopped at the same collective.

        RankDied if they differ: some wait for the others for ever, or were about to.
        """
        assert self._group is not None
        deadline = time.monotonic() + AGREE_S
        while time.monotonic() < deadline:
            self.check()
            failed = list(self._unsettled.get(step, {}).values())
            if len(failed) == len(self._followers):
                del self._unsettled[step]
                if {num_calls for num_calls, _ in failed} == {self._group.num_calls}:
                    self.send(GoOnMsg(step))
                    return
                break
            time.sleep(0.001)
        self._fail(RankDied(f"rank 0 ran out of memory in step {step} at another point than the others"))
        self.check()

    def close(self, patience_s: float = END_S) -> None:
        """Tell them to end, and wait; who is still there after `patience_s` is killed. May be called twice."""
        if self._is_closing:
            return
        self._is_closing = True
        if self._failure is None:
            with contextlib.suppress(RankDied):
                self.send(ShutdownMsg())
            self._wait_until_ended(patience_s)
        if self._watcher.is_alive():
            self._watcher.join(END_S)
        self._stack.close()

    # ---- starting and ending

    def _wait_until_started(self) -> None:
        started: set[int] = set()
        deadline = time.monotonic() + START_S
        while len(started) < len(self._followers) or not all(child.outbox.has_room() for child in self._followers):
            for news in self._news():
                if isinstance(news, RankStarted):
                    started.add(news.rank)
            self.check()
            if time.monotonic() > deadline:
                raise RankDied(f"only {len(started)} of {len(self._followers)} processes started in {START_S:.0f} s")

    def _wait_until_ended(self, patience_s: float) -> None:
        deadline = time.monotonic() + patience_s
        for follower in self._followers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                follower.process.wait(max(deadline - time.monotonic(), 0))

    # ---- the watcher's thread

    def _watch(self) -> None:
        while not self._is_closing and self._failure is None:
            for news in self._news():
                if isinstance(news, BatchFailed):
                    found = self._unsettled.setdefault(news.step, {})
                    found[news.rank] = news.num_calls, time.monotonic()
            self._look_for_waiters()
        if self._failure is not None and not self._noticed.wait(NOTICE_S) and not self._is_closing:
            self.when_stuck(str(self._failure))

    def _news(self) -> list[RankNews]:
        """What they say; the last word of one that ended is why all fail, unless one was killed and had none."""
        codes = [(follower, follower.process.poll()) for follower in self._followers]
        news = self._inbox.receive(POLL_S)
        for follower in self._followers:
            if (code := follower.process.poll()) is not None and code < 0:
                self._fail(RankDied(follower.how_it_ended(code)))
        for item in news:
            if isinstance(item, RankFailed):
                error = ValueError(item.error) if item.by_user else RankDied(f"rank {item.rank}: {item.error}")
                self._fail(error)
        for follower, code in codes:
            if code is not None:
                self._fail(RankDied(follower.how_it_ended(code)))
        return news

    def _look_for_waiters(self) -> None:
        """Ranks that wait for others which will never come."""
        now, deadline = time.monotonic(), self._deadline
        for step, ranks in list(self._unsettled.items()):
            for rank, (_, at) in list(ranks.items()):
                if now - at > 2 * AGREE_S:
                    self._fail(RankDied(f"rank {rank} alone ran out of memory in step {step}"))
        if deadline is not None and now > deadline:
            self._fail(RankDied("the ranks took too long: some wait for others that never come"))

    def _fail(self, error: Exception) -> None:
        """The first reason stays. Ends all ranks, and whatever rank 0 waits for."""
        if self._failure is not None or self._is_closing:
            return
        self._failure = error
        for follower in self._followers:
            follower.process.kill()
        self._failed.set()
        if self._group is not None:
            self._group.abort()
