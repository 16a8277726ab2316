"""`Run`: prompts on their way in an event loop, whose thread makes text of their tokens."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial

from minisgl.llm.router import Arrival
from minisgl.llm.submission import Delta, Submission
from minisgl.message import TokenReply

OnOver = Callable[[], None]
OnNews = Callable[[list[Delta]], bool]


class Run:
    """Prompts that were started together: an iterator of lists of deltas, for one reader. All in the loop's thread.

    The text is made when the loop gets to it: the link's thread, which wants the same interpreter, has little to do.
    """

    def __init__(self, submission: Submission, mail: Mail, on_over: OnOver, on_news: OnNews) -> None:
        self._submission = submission
        self._mail = mail
        self._on_over = on_over
        self._on_news = on_news
        self._deltas = Merged()  # that the reader has not taken yet
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None  # of a reader that is done with all that came before

    @property
    def uids(self) -> tuple[int, ...]:
        """As `Submission.uids`."""
        return self._submission.uids

    def start(self) -> None:
        self._submission.start(partial(self._mail.put, self))

    def abort(self) -> None:
        """Stop what still runs; the reader gets what there is, with finish_reason "abort"."""
        self._submission.abort()

    def close(self) -> None:
        """Stop what still runs, and give nothing more."""
        self._submission.close()

    def take(self, reply: TokenReply, at: float) -> None:
        """A reply has come. What goes wrong with it is the reader's to have, nobody else's."""
        try:
            delta = self._submission.take(reply, at)
        except Exception as error:
            self._error = error
            return
        if delta is not None:
            self._deltas.add(delta)

    def tell(self) -> None:
        """All has been taken that is there now: pass it on."""
        is_over = self._is_over
        waiter = self._waiter
        if waiter is not None and not waiter.done() and (is_over or (self._deltas and not self._is_passed_on())):
            waiter.set_result(None)
        if is_over:
            self._on_over()

    @property
    def _is_over(self) -> bool:
        return self._error is not None or self._submission.is_over

    def _is_passed_on(self) -> bool:
        try:
            if not self._on_news(self._deltas.all()):
                return False
        except Exception as error:
            self._error = error
        self._deltas.clear()
        return self._error is None

    def __aiter__(self) -> Run:
        return self

    async def __anext__(self) -> list[Delta]:
        while not self._deltas:
            self._check_open()
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._deltas.take()

    def _check_open(self) -> None:
        """Raises what ends the iterator."""
        if self._error is not None:
            raise self._error
        if self._submission.is_over:
            raise StopAsyncIteration


class Mail:
    """Brings replies into an event loop: one call there for all that have gathered, then one word to each run."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._arrived: list[tuple[Run, Arrival]] = []
        self._lock = threading.Lock()

    def put(self, run: Run, arrival: Arrival) -> None:
        """From any thread. After the loop has closed, nobody is told."""
        with self._lock:
            self._arrived.append((run, arrival))
            is_first = len(self._arrived) == 1
        if is_first:
            try:
                self.loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:
                self._arrived.clear()

    def _deliver(self) -> None:
        with self._lock:
            arrived, self._arrived = self._arrived, []
        runs: dict[Run, None] = {}
        for run, arrival in arrived:
            for reply in arrival.each():
                run.take(reply, arrival.at)
            runs[run] = None
        for run in runs:
            run.tell()


class Merged:
    """Deltas that wait to be taken: one for each choice, however many came."""

    __slots__ = ("_deltas", "_texts")

    def __init__(self) -> None:
        self._deltas: dict[tuple[int, int], Delta] = {}  # by prompt and choice
        self._texts: dict[tuple[int, int], list[str]] = {}  # pieces of those that were merged

    def __bool__(self) -> bool:
        return bool(self._deltas)

    def add(self, delta: Delta) -> None:
        key = (delta["index"], delta["choice"])
        first = self._deltas.setdefault(key, delta)
        if first is not delta:
            self._texts.setdefault(key, [first["text"]]).append(delta["text"])
            _merge(first, delta)

    def all(self) -> list[Delta]:
        """In the order in which their choices came first."""
        for key, pieces in self._texts.items():
            self._deltas[key]["text"] = "".join(pieces)
        self._texts.clear()
        return list(self._deltas.values())

    def clear(self) -> None:
        self._deltas = {}

    def take(self) -> list[Delta]:
        """All of them, and they wait no longer."""
        deltas = self.all()
        self.clear()
        return deltas


def _merge(first: Delta, then: Delta) -> None:
    """Make `first` one delta for two in a row of the same choice, but for the text."""
    first["token_ids"] += then["token_ids"]
    then["token_ids"] = first["token_ids"]
    if "logprobs" in then:
        first["logprobs"] += then["logprobs"]
        then["logprobs"] = first["logprobs"]
    first.update(then)
