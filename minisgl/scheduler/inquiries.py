"""Questions that take longer than a step may be held up, worked on a little at every step."""

from __future__ import annotations

from collections import deque

from minisgl.kvcache.base import Slices
from minisgl.message import Reply

MAX_OPEN = 4  # each holds what it has found so far


class Inquiries:
    """A few are worked on in turns, so that a short one need not wait for the end of a long one; others come later."""

    def __init__(self) -> None:
        self._open: deque[Slices[Reply]] = deque()
        self._waiting: deque[Slices[Reply]] = deque()

    def __bool__(self) -> bool:
        """Whether there is anything to work on."""
        return bool(self._open)

    def add(self, inquiry: Slices[Reply]) -> None:
        (self._open if len(self._open) < MAX_OPEN else self._waiting).append(inquiry)

    def advance(self) -> Reply | None:
        """Work on one of them for a millisecond or two; its answer, if that was all."""
        inquiry = self._open.popleft()
        try:
            next(inquiry)
        except StopIteration as done:
            if self._waiting:
                self._open.append(self._waiting.popleft())
            reply: Reply = done.value
            return reply
        self._open.append(inquiry)
        return None
