"""Memory that requests share: bodies on their way in, answers on their way out."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from minisgl.server.errors import ApiError
from minisgl.server.gate import RETRY_AFTER_S


class Budget:
    """A number of bytes, held in order of arrival. Belongs to the event loop's thread.

    limit: of all together; more than that is held only alone. name: of what is held, for the error. patience: seconds
    for which a holder waits. held: bytes now.
    """

    def __init__(self, limit: int, name: str, patience: float) -> None:
        self.held = 0
        self._limit = limit
        self._name = name
        self._patience = patience
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def hold(self, num_bytes: int) -> AsyncIterator[None]:
        """Hold so many bytes while the block runs. Waits for them; ApiError 503 when they do not come in time."""
        if self._waiting or not self.has_room(num_bytes):
            await self._wait(num_bytes)
        else:
            self.held += num_bytes
        try:
            yield
        finally:
            self.remove(num_bytes)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    def has_room(self, num_bytes: int) -> bool:
        return not self.held or self.held + num_bytes <= self._limit

    def add(self, num_bytes: int) -> None:
        """Count what is held already, whether there is room for it or not."""
        self.held += num_bytes

    def remove(self, num_bytes: int) -> None:
        """These are held no more."""
        self.held -= num_bytes
        while self._waiting and self.has_room(self._waiting[0][0]):
            num, turn = self._waiting.popleft()
            if not turn.done():
                self.held += num
                turn.set_result(None)

    def full_error(self) -> ApiError:
        return ApiError(
            503,
            f"{self._name} hold {self.held} bytes of at most {self._limit}; try again later",
            code="server_overloaded",
            headers={"Retry-After": str(RETRY_AFTER_S)},
        )

    async def _wait(self, num_bytes: int) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((num_bytes, turn))
        try:
            async with asyncio.timeout(self._patience):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.remove(num_bytes)
            turn.cancel()
            if isinstance(error, TimeoutError):
                raise self.full_error() from None
            raise
