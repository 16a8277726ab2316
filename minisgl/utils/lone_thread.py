"""`LoneThread`: a thread for calls that may take long."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class LoneThread(ThreadPoolExecutor):
    """Calls one after another, in one thread. At its end Python waits for the call that runs, however long it takes."""

    def __init__(self, name: str) -> None:
        super().__init__(1, thread_name_prefix=name)
        self._open: set[Future[Any]] = set()

    @property
    def is_busy(self) -> bool:
        """Whether a call runs, or waits for its turn and was not cancelled."""
        return bool(self._open)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future = super().submit(fn, *args, **kwargs)
        self._open.add(future)
        future.add_done_callback(self._open.discard)
        return future
