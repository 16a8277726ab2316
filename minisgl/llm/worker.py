"""The thread in which engine and scheduler live. Others reach them by messages, or by a call between two steps."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from minisgl.core import Forward
from minisgl.llm.assembly import Parts
from minisgl.llm.router import Router, Sink
from minisgl.message import (
    AbortMsg,
    FinishMsg,
    LocalQueue,
    Question,
    RequestMsg,
    ShutdownMsg,
    UserMsg,
)
from minisgl.message.questions import AnswerT
from minisgl.scheduler.loop import Loop
from minisgl.utils.logging import get_logger

LOOK_S = 0.1  # how often one who waits for the thread looks whether it will come to an end
T = TypeVar("T")
logger = get_logger(__name__)


@dataclass(frozen=True, eq=False)
class _Call:
    """Something to do between two steps, and where its result goes."""

    function: Callable[[], Any]
    future: Future[Any]

    def make(self) -> None:
        try:
            self.future.set_result(self.function())
        except Exception as error:
            self.future.set_exception(error)


class _Inbox:
    """Messages for the loop. A call is made when everything sent before it has been through a step."""

    def __init__(self) -> None:
        self.queue: LocalQueue[RequestMsg | _Call] = LocalQueue()
        self._pending: deque[RequestMsg | _Call] = deque()

    def receive(self, timeout: float | None) -> list[RequestMsg]:
        pending, messages = self._pending, list[RequestMsg]()
        pending.extend(self.queue.receive(0 if pending else timeout))
        while pending:
            item = pending[0]
            if not isinstance(item, _Call):
                messages.append(item)
            elif messages:
                break
            else:
                item.make()
            pending.popleft()
        return messages


class Worker:
    """Runs a `Loop` until `shutdown`. If the loop dies, every open request gets an error reply and `error` is set.

    The parts are made in the worker's thread too: a second thread that computes has a second pool of OpenMP threads,
    and the two pools take the cores from each other. Errors of `assemble` are raised here.
    """

    def __init__(self, assemble: Callable[[], Parts], forward: Forward) -> None:
        self.error: BaseException | None = None
        self._is_stuck = False  # for good: it waits for a device that does not answer
        self._inbox = _Inbox()
        self._router = Router()
        self._started: Future[tuple[Parts, Loop]] = Future()
        self._thread = threading.Thread(target=self._run, args=(assemble, forward), name="minisgl-worker", daemon=True)
        self._thread.start()
        try:
            self.parts, self.loop = self._started.result()
        except BaseException:  # Ctrl-C while loading: torch must not be at work when the interpreter ends
            self._inbox.queue.send([ShutdownMsg()])
            self._thread.join()
            raise

    def submit(self, requests: Sequence[UserMsg], sink: Sink) -> None:
        """Start these requests in one go; their replies go to `sink`, called in the worker's thread."""
        self._check_alive()
        self._router.register([request.uid for request in requests], sink)
        self._inbox.queue.send(requests)

    def finish(self, uid: int, num_tokens: int) -> None:
        """A stop string was found: no more news of `uid`, and what it generated past `num_tokens` is forgotten."""
        self.forget(uid)
        self._inbox.queue.send([FinishMsg(uid, num_tokens)])

    def abort(self, uid: int) -> None:
        """Stop `uid`; its last reply says so."""
        self._inbox.queue.send([AbortMsg(uid)])

    def forget(self, uid: int) -> None:
        """The reader of `uid` has left: no more replies."""
        self._router.forget(uid)

    def ask(self, question: Question[AnswerT]) -> Future[AnswerT]:
        """The answer comes after the step that takes the question in."""
        self._check_alive()
        answer = self._router.expect(question)
        self._inbox.queue.send([question])
        return answer

    def call(self, function: Callable[[], T]) -> T:
        """What `function` gives in the worker's thread, between two steps."""
        if self._thread is threading.current_thread() or not self._is_at_work:
            return function()
        future: Future[T] = Future()
        self._inbox.queue.send([_Call(function, future)])
        while not future.done() and self._is_at_work:
            _wait(future)
        return future.result() if future.done() else function()

    def drain(self) -> None:
        """Wait until nothing is queued, running or launched."""
        while self._is_at_work and self.call(lambda: self.loop.has_work):
            pass

    def shutdown(self) -> None:
        """Abort what is open and wait for the thread to end, if it ever will. May be called twice."""
        self._inbox.queue.send([ShutdownMsg()])
        while self._thread is not threading.current_thread() and self._is_at_work:
            self._thread.join(LOOK_S)
        self._router.close("the engine was shut down")

    @property
    def _is_at_work(self) -> bool:
        """Whether the thread will come to what it is sent."""
        return self._thread.is_alive() and not self._is_stuck

    def _check_alive(self) -> None:
        if not self._thread.is_alive():
            self._router.close("the engine's thread is not running: an LLM does not survive a fork")

    def _run(self, assemble: Callable[[], Parts], forward: Forward) -> None:
        try:
            parts = assemble()
            inbox, computing_s = parts.watched(self._inbox), parts.engine.computing_s
            loop = Loop(parts.scheduler, forward, inbox, self._router, parts.overlap, computing_s)
        except BaseException as error:
            self._started.set_exception(error)
            return
        parts.when_stuck(self._give_up)
        self._started.set_result((parts, loop))
        try:
            loop.run()
        except BaseException as error:
            logger.exception("the engine died")
            self.error = error
            self._router.close(f"the engine died: {error!r}")
        finally:
            parts.close()

    def _give_up(self, reason: str) -> None:
        """The thread waits for a device that will not answer: nobody else shall."""
        self.error = RuntimeError(reason)
        self._is_stuck = True
        self._router.close(f"the engine died: {reason}")


def _wait(future: Future[Any]) -> None:
    """Until it is done, or a moment has passed in which the thread that would do it may have died."""
    try:
        future.exception(timeout=LOOK_S)
    except TimeoutError:
        return
