"""Questions that take longer than a step may be held up, worked on a little at every step."""

from __future__ import annotations

from collections import deque

from minisgl.kvcache.view import Slices
from minisgl.message import Reply

MAX_OPEN = 4  # each holds what it has found so far


class Inquiries:
    """A few are worked on in turns, so that a short one need not wait for the end of a long one; others come later."""

    def __init__(self) -> None:
        self._waiting: dict[int, Slices[Reply]] = {}  # by the uid of the question, as those below
        self._open: dict[int, Slices[Reply]] = {}
        self._turns: deque[int] = deque()  # of those that are open

    def __bool__(self) -> bool:
        """Whether there is anything to work on."""
        return bool(self._open)

    def add(self, uid: int, inquiry: Slices[Reply]) -> None:
        self._waiting[uid] = inquiry
        self._fill()

    def drop(self, uid: int) -> None:
        """Whoever asked wants no answer any more; nothing happens if there is no such question."""
        self._waiting.pop(uid, None)
        if self._open.pop(uid, None) is not None:
            self._turns.remove(uid)
            self._fill()

    def advance(self) -> Reply | None:
        """Work on one of them for a millisecond or two; its answer, if that was all."""
        uid = self._turns.popleft()
        try:
            next(self._open[uid])
        except StopIteration as done:
            del self._open[uid]
            self._fill()
            reply: Reply = done.value
            return reply
        self._turns.append(uid)
        return None

    def _fill(self) -> None:
        while self._waiting and len(self._open) < MAX_OPEN:
            uid = next(iter(self._waiting))
            self._open[uid] = self._waiting.pop(uid)
            self._turns.append(uid)
