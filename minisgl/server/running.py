"""Requests that generate right now, and how one of them is ended early."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Literal

Cause = Literal["disconnect", "timeout", "abort"]


class Cutoff:
    """`async with` it: the block is cancelled when `cut` is called or after `seconds`; `cause` then says why.

    The block ends with TimeoutError. All in the event loop's thread. seconds: None is no limit.
    """

    def __init__(self, seconds: float | None) -> None:
        self.cause: Cause | None = None
        self._timeout = asyncio.timeout(seconds)
        self._has_ended = False

    def cut(self, cause: Cause) -> None:
        """End the block now. Only the first cause counts, and only until the block has ended."""
        if self.cause is None and not self._has_ended and not self._timeout.expired():
            self.cause = cause
            self._timeout.reschedule(asyncio.get_running_loop().time())

    async def __aenter__(self) -> Cutoff:
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._timeout.expired() and self.cause is None:
            self.cause = "timeout"
        self._has_ended = True
        await self._timeout.__aexit__(kind, error, traceback)


class Running:
    """Cutoffs by name. A name may be a client's own, so several requests may have it."""

    def __init__(self) -> None:
        self._cutoffs: dict[str, list[Cutoff]] = {}

    @contextmanager
    def enter(self, names: Iterable[str], cutoff: Cutoff) -> Iterator[None]:
        """Be found under these names for as long as the block runs."""
        names = set(names)
        for name in names:
            self._cutoffs.setdefault(name, []).append(cutoff)
        try:
            yield
        finally:
            for name in names:
                self._leave(name, cutoff)

    def abort(self, name: str) -> int:
        """End the requests of that name; how many there were."""
        return _cut(self._cutoffs.get(name, ()))

    def abort_all(self) -> int:
        """End every request; how many there were."""
        return _cut({cutoff for cutoffs in self._cutoffs.values() for cutoff in cutoffs})

    def _leave(self, name: str, cutoff: Cutoff) -> None:
        self._cutoffs[name].remove(cutoff)
        if not self._cutoffs[name]:
            del self._cutoffs[name]


def _cut(cutoffs: Iterable[Cutoff]) -> int:
    found = list(cutoffs)
    for cutoff in found:
        cutoff.cut("abort")
    return len(found)
