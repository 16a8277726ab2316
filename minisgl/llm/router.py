"""Which reader gets which reply, and what every reader gets when the engine is gone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, NamedTuple

from minisgl.message import NextTokens, Question, Reply, TokenNews, TokenReply
from minisgl.message.questions import AnswerT


class Arrival(NamedTuple):
    """One step's replies for one reader, and when they came (`time.perf_counter`), however late it takes them."""

    replies: list[TokenNews]
    at: float

    def each(self) -> Iterator[TokenReply]:
        """The replies, each of one request."""
        for reply in self.replies:
            if isinstance(reply, NextTokens):
                yield from reply.each()
            else:
                yield reply


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
            self._answers.pop(uid, None)

    def send(self, replies: list[Reply]) -> None:
        """Pass on the replies of one step. Sinks are called without the lock, so they may come back here."""
        at = time.perf_counter()
        found: dict[Sink, list[TokenNews]] = {}
        answered = []
        with self._lock:
            for reply in replies:
                if isinstance(reply, NextTokens):
                    self._sort(reply, found)
                elif isinstance(reply, TokenReply):
                    is_last = reply.finish_reason is not None
                    sink = self._sinks.pop(reply.uid, None) if is_last else self._sinks.get(reply.uid)
                    if sink is not None:
                        found.setdefault(sink, []).append(reply)
                else:
                    answered.append((self._answers.pop(reply.uid, None), reply.answer))
        for sink, news in found.items():
            sink(Arrival(news, at))
        for future, answer in answered:
            if future is not None:
                future.set_result(answer)

    def _sort(self, tokens: NextTokens, found: dict[Sink, list[TokenNews]]) -> None:
        """File them under their sinks: as they are if all go to one, as those of one call of `generate` do."""
        sinks = list(map(self._sinks.get, tokens.uids))
        if sinks.count(sinks[0]) == len(sinks):
            if sinks[0] is not None:
                found.setdefault(sinks[0], []).append(tokens)
            return
        for sink, reply in zip(sinks, tokens.each(), strict=True):
            if sink is not None:
                found.setdefault(sink, []).append(reply)

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
