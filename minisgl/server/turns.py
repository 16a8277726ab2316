"""Questions that cost an engine more than a glance: however many ask, running requests must not feel it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

from minisgl.server.errors import ApiError
from minisgl.server.gate import RETRY_AFTER_S

MAX_OPEN = 16  # different questions, of which each holds its answer for a moment
K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class _Asked:
    """A question that is open, and how many wait for its answer."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task = task
        self.num_waiting = 0


class Turns:
    """Answers a few questions at once. Equal ones that are open are asked once. Belongs to the event loop's thread.

    num_at_once: so many. rest: for how many seconds none takes the place of one that took so many.
    """

    def __init__(self, num_at_once: int, rest: Callable[[float], float]) -> None:
        self._places = asyncio.Semaphore(num_at_once)
        self._rested_at = [0.0] * num_at_once  # a heap, of places that are free
        self._rest = rest
        self._open: dict[Hashable, _Asked] = {}

    async def ask(self, question: Hashable, answer: Callable[[], Awaitable[T]]) -> T:
        """What `answer` gives, or has been asked to give already. ApiError 429 where too many are open.

        An asker who leaves ends nothing while others wait for the same; with the last one it is cancelled.
        """
        asked = self._open.get(question)
        if asked is None:
            if len(self._open) >= MAX_OPEN:
                raise _too_many()
            asked = self._open[question] = _Asked(asyncio.ensure_future(self._in_turn(answer)))
        asked.num_waiting += 1
        try:
            answered: T = await asyncio.shield(asked.task)
            return answered
        finally:
            asked.num_waiting -= 1
            if not asked.num_waiting:
                del self._open[question]
                asked.task.cancel()

    async def _in_turn(self, answer: Callable[[], Awaitable[T]]) -> T:
        async with self._places:
            rested_at = heappop(self._rested_at)
            try:
                await asyncio.sleep(rested_at - time.monotonic())
                began = time.monotonic()
                try:
                    return await answer()
                finally:
                    now = time.monotonic()
                    rested_at = now + self._rest(now - began)
            finally:
                heappush(self._rested_at, rested_at)


class _Group(Generic[K]):
    def __init__(self) -> None:
        self.keys: set[K] = set()


class Together(Generic[K]):
    """One question for all who have come since the last one was asked, whatever each of them wants to know of it."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._group = _Group[K]()  # whose turn is still to come

    async def ask(self, key: K, answer: Callable[[set[K]], Awaitable[dict[K, T]]]) -> T:
        """What `answer` gives for this key, of all that it is given. ApiError 429 where these would be too many."""
        group = self._group
        if key not in group.keys and len(group.keys) >= MAX_OPEN:
            raise _too_many()
        group.keys.add(key)
        return (await self._turns.ask(group, partial(self._answer, group, answer)))[key]

    async def _answer(self, group: _Group[K], answer: Callable[[set[K]], Awaitable[dict[K, T]]]) -> dict[K, T]:
        self._group = _Group()
        return await answer(group.keys)


def _too_many() -> ApiError:
    return ApiError(
        429,
        f"{MAX_OPEN} questions like this are open; try again later",
        code="rate_limit_exceeded",
        headers={"Retry-After": str(RETRY_AFTER_S)},
    )
