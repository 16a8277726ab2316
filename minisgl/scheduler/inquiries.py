"""Questions that take longer than a step may be held up, worked on a little at every step."""

from __future__ import annotations

from collections import deque

from minisgl.kvcache.base import Slices
from minisgl.message import Reply


class Inquiries:
    """One is worked on at a time; the others wait, in the order in which they came."""

    def __init__(self) -> None:
        self._open: deque[Slices[Reply]] = deque()

    def __bool__(self) -> bool:
        """Whether there is anything to work on."""
        return bool(self._open)

    def add(self, inquiry: Slices[Reply]) -> None:
        self._open.append(inquiry)

    def advance(self) -> Reply | None:
        """Work on the first one for a millisecond or two; its answer, if that was all."""
        try:
            next(self._open[0])
        except StopIteration as done:
            self._open.popleft()
            reply: Reply = done.value
            return reply
        return None
