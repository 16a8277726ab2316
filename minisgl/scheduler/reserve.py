"""How many pages a request is promised: for all that it may generate, or for what such requests generated lately."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right, insort
from collections import deque
from math import ceil
from typing import ClassVar

from minisgl.scheduler.request import Request

WINDOW = 256  # outputs that are remembered for each class of max_tokens
FEWEST = 4  # outputs of a class before anything is concluded from them
# Of the outputs that went on as long as this one has. Low, as requests are at different points of their outputs: those
# that end make room for those that last. From 0.3 up pages hardly ever run out; at 0.9 a third of the gain is lost.
QUANTILE = 0.3
RETRACTION_ADDS, END_KEEPS = 0.2, 0.9  # to and of the caution, which is between 0 and 1


class Reserve(ABC):
    """adapts: whether its answers change with what is learned."""

    adapts: ClassVar[bool]

    @abstractmethod
    def kv_len(self, request: Request) -> int:
        """Tokens whose KV the request, waiting or running, should have room for: all that it has now, and more."""

    @abstractmethod
    def finished(self, request: Request) -> None:
        """It came to its own end, so its output's length is known."""

    @abstractmethod
    def retracted(self) -> None:
        """The pages did not suffice."""


class FullReserve(Reserve):
    """Room for max_tokens: what is admitted is never retracted."""

    adapts = False

    def kv_len(self, request: Request) -> int:
        return request.max_kv_len

    def finished(self, request: Request) -> None:
        """Nothing is learned."""

    def retracted(self) -> None:
        """Nobody ever is."""


class LearnedReserve(Reserve):
    """Room for a length that most outputs reached of those that were still going on after as many tokens.

    Requests are told apart by the size (power of two) of their max_tokens: what asks for eight tokens says nothing of
    what asks for a thousand. Until a class is known it gets its max_tokens. A retraction moves all answers towards
    max_tokens, and every end moves them back. Nothing depends on a clock, so a trace replays to the same answers.
    """

    adapts = True

    def __init__(self) -> None:
        self._classes: dict[int, OutputLengths] = {}
        self._caution = 0.0

    def kv_len(self, request: Request) -> int:
        most = request.max_device_len - request.prompt_len
        generated = max(request.num_ids, request.device_len + 1) - request.prompt_len  # the last may be in flight
        expected = min(most, self._class(most).expected(generated) or most)
        output = expected + ceil(self._caution * (most - expected))
        return max(request.prompt_len + output - 1, request.prefill_len)

    def finished(self, request: Request) -> None:
        self._class(request.max_device_len - request.prompt_len).add(request.num_generated)
        self._caution *= END_KEEPS

    def retracted(self) -> None:
        self._caution = min(1.0, self._caution + RETRACTION_ADDS)

    def _class(self, max_tokens: int) -> OutputLengths:
        return self._classes.setdefault(max_tokens.bit_length(), OutputLengths())


class OutputLengths:
    """The lengths of the last outputs, in tokens."""

    def __init__(self) -> None:
        self._recent: deque[int] = deque()
        self._sorted: list[int] = []

    def add(self, length: int) -> None:
        if len(self._recent) == WINDOW:
            self._sorted.remove(self._recent.popleft())
        self._recent.append(length)
        insort(self._sorted, length)

    def expected(self, generated: int) -> int | None:
        """A likely length, more than `generated`, of an output that has got so far; None if too little is known.

        One that outlives all the others is expected to go on for as long again.
        """
        known = self._sorted
        if len(known) < FEWEST:
            return None
        first = bisect_right(known, generated)
        if first == len(known):
            return 2 * generated + 1
        return known[first + ceil(QUANTILE * (len(known) - first)) - 1]


RESERVES: dict[str, type[Reserve]] = {"estimate": LearnedReserve, "full": FullReserve}
