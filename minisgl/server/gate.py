"""How many sequences the server takes on at once: those that run and those that wait behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from minisgl.server.errors import ApiError

RETRY_AFTER_S = 1


class Gate:
    """Counts sequences (a prompt's n choices are n). Belongs to the event loop's thread.

    max_running: how many the engine runs at once, as far as is known. num_open: let in and not out again.
    is_draining: nobody is let in any more.
    """

    def __init__(self, max_running: int, max_queued: int) -> None:
        self.max_running = max_running
        self.num_open = 0
        self.is_draining = False
        self._max_queued = max_queued

    @property
    def capacity(self) -> int:
        """The most that are inside at once."""
        return self.max_running + self._max_queued

    def drain(self) -> None:
        """From now on every request is refused with 503; those inside go on."""
        self.is_draining = True

    @contextmanager
    def enter(self, num_sequences: int) -> Iterator[Callable[[], None]]:
        """Be inside for as long as the block runs, or until what it gives is called.

        ApiError: 400 for what could never fit, 429 when it does not fit now, 503 when draining.
        """
        self.check(num_sequences)
        with ExitStack() as place:
            self.num_open += num_sequences
            place.callback(self._leave, num_sequences)
            yield place.close

    def check(self, num_sequences: int) -> None:
        """ApiError, as `enter` would raise it now."""
        if self.is_draining:
            raise draining_error()
        if num_sequences > self.capacity:
            raise ApiError(
                400, f"{num_sequences} sequences in one request are over the server's limit of {self.capacity}"
            )
        if self.num_open + num_sequences > self.capacity:
            raise ApiError(
                429,
                f"{self.num_open} of {self.capacity} sequences run or wait; try again later",
                code="rate_limit_exceeded",
                headers={"Retry-After": str(RETRY_AFTER_S)},
            )

    def _leave(self, num_sequences: int) -> None:
        self.num_open -= num_sequences


def draining_error() -> ApiError:
    return ApiError(503, "the server is shutting down", code="server_shutting_down")
