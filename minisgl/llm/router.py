"""Which reader gets which reply, and what every reader gets when the engine is gone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, NamedTuple

from minisgl.message import Question, Reply, TokenReply
from minisgl.message.types import AnswerT


class Arrival(NamedTuple):
    """One step's replies for one reader, and when they came (`time.perf_counter`), however late it takes them."""

    replies: list[TokenReply]
    at: float


Sink = Callable[[Arrival], None]


class EngineDied(RuntimeError):  # noqa: N818 - it is news, not a mistake
    """The engine has died, or was shut down: what was open has no end, and what comes is refused. Its text says why."""


class Router:
    """uid -> sink. An outbox for the loop; safe between threads. Replies that nobody waits for are dropped.

    A sink is called once a step, however many requests it follows.
    """

    def __init__(self) -> None:
        self._sinks: dict[int, Sink] = {}
        self._answers: dict[int, Future[Any]] = {}  # by the uid of the question
        self._lock = threading.RLock()  # a collection under it may close a forgotten stream, which comes back here
        self._closed: str | None = None

    def register(self, uids: Iterable[int], sink: Sink) -> None:
        """Send replies for `uids` to `sink`, until the one with a finish reason. EngineDied once closed."""
        with self._lock:
            self._check_open()
            self._sinks.update((uid, sink) for uid in uids)

    def expect(self, question: Question[AnswerT]) -> Future[AnswerT]:
        """What will hold the answer. EngineDied once closed."""
        with self._lock:
            self._check_open()
            answer = self._answers[question.uid] = Future[AnswerT]()
            answer.set_running_or_notify_cancel()  # an asker who leaves cannot cancel it: the answer may be on its way
            return answer

    def forget(self, uid: int) -> None:
        with self._lock:
            self._sinks.pop(uid, None)

    def send(self, replies: list[Reply]) -> None:
        """Pass on the replies of one step. Sinks are called without the lock, so they may come back here."""
        at = time.perf_counter()
        found: dict[Sink, list[TokenReply]] = {}
        sinks = self._sinks
        answered = []
        with self._lock:
            for reply in replies:
                if not isinstance(reply, TokenReply):
                    answered.append((self._answers.pop(reply.uid, None), reply.answer))
                    continue
                uid = reply.uid
                sink = sinks.get(uid) if reply.finish_reason is None else sinks.pop(uid, None)
                if sink in found:
                    found[sink].append(reply)
                elif sink is not None:
                    found[sink] = [reply]
        for sink, news in found.items():
            sink(Arrival(news, at))
        for future, answer in answered:
            if future is not None:
                future.set_result(answer)

    def close(self, reason: str) -> None:
        """Answer everything that is open with an error, and refuse what comes. The first reason stays."""
        with self._lock:
            self._closed = reason = self._closed or reason
            open_uids, answers = list(self._sinks), list(self._answers.values())
            self._answers.clear()
        self.send([TokenReply(uid, finish_reason="error", error=reason) for uid in open_uids])
        for answer in answers:
            answer.set_exception(EngineDied(reason))

    def _check_open(self) -> None:
        if self._closed is not None:
            raise EngineDied(self._closed)
