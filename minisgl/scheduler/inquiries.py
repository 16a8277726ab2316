"""Questions that take longer than a step may be held up, worked on a little at every step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice

from minisgl.kvcache.view import Slices
from minisgl.message import Reply

MAX_OPEN = 4  # each holds what it has found so far
Begin = Callable[[], Slices[Reply]]


class Inquiries:
    """A few are worked on in turns, so that a short one need not wait for the end of a long one; others come later."""

    def __init__(self) -> None:
        self._questions: dict[int, Begin] = {}  # by uid, as those below; those that wait come after those that do not
        self._open: dict[int, Slices[Reply]] = {}
        self._turns: deque[int] = deque()  # of those that are open

    def __bool__(self) -> bool:
        """Whether there is anything to work on."""
        return bool(self._open)

    def add(self, uid: int, begin: Begin) -> None:
        self._questions[uid] = begin
        self._fill()

    def drop(self, uid: int) -> None:
        """Whoever asked wants no answer any more; nothing happens if there is no such question."""
        self._questions.pop(uid, None)
        if self._open.pop(uid, None) is not None:
            self._turns.remove(uid)
            self._fill()

    def begin_again(self) -> None:
        """What was found so far may be told no more."""
        self._open = {uid: self._questions[uid]() for uid in self._open}

    def advance(self) -> Reply | None:
        """Work on one of them for a millisecond or two; its answer, if that was all."""
        uid = self._turns.popleft()
        try:
            next(self._open[uid])
        except StopIteration as done:
            del self._open[uid], self._questions[uid]
            self._fill()
            reply: Reply = done.value
            return reply
        self._turns.append(uid)
        return None

    def _fill(self) -> None:
        for uid in list(islice(self._questions, len(self._open), MAX_OPEN)):
            self._open[uid] = self._questions[uid]()
            self._turns.append(uid)
