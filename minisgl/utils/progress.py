"""A bar for what takes long: on stderr if that is a terminal, once two seconds have passed, with the time left."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress

T = TypeVar("T")
PATIENCE_S = 2.0  # what is over sooner shows nothing
REDRAWN_PER_S = 2  # rarely: whoever draws has the interpreter meanwhile
TOLD_PER_S = 10  # counts that come in between are not passed on
BYTES = "bytes"

_on_terminal = threading.Lock()  # held by the bar that is there: a second one would be drawn over it


class ProgressBar:
    """Entered while the work is done, and counts in one thread. Where nobody sees it, that is an addition.

    what: is being done. total: so many of `unit`, of which BYTES are shown as such. is_hidden: never shown.
    """

    def __init__(self, what: str, total: int, unit: str, *, is_hidden: bool = False) -> None:
        self.done = 0
        self._what, self._total, self._unit = what, total, unit
        self._progress: Progress | None = None
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None  # for work that takes long to count anything
        if not is_hidden and _has_terminal():
            self._timer = threading.Timer(PATIENCE_S, self._show)
            self._timer.daemon = True

    def __enter__(self) -> ProgressBar:
        if self._timer is not None:
            self._due = time.monotonic() + PATIENCE_S
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
            self._timer = None
        if self._progress is not None:
            self._draw(self._progress)
            self._progress.stop()
            self._progress = None
            _on_terminal.release()

    def advance(self, count: int = 1) -> None:
        """So many more are done."""
        self.advance_to(self.done + count)

    def advance_to(self, done: int) -> None:
        """So many are done in all."""
        self.done = done
        if self._timer is None or (now := time.monotonic()) < self._due:
            return
        self._due = now + 1 / TOLD_PER_S
        if self._progress is None:
            self._show()
        else:
            self._draw(self._progress)

    def _show(self) -> None:
        with self._lock:
            if self._progress is None and _on_terminal.acquire(blocking=False):
                progress = _make_progress(self._unit)
                progress.add_task(self._what, total=self._total)
                self._draw(progress)
                progress.start()
                self._progress = progress

    def _draw(self, progress: Progress) -> None:
        progress.update(progress.task_ids[0], completed=self.done)


def tracked(items: Sequence[T], what: str, unit: str) -> Iterator[T]:
    """The items, with a bar that counts them."""
    with ProgressBar(what, len(items), unit) as bar:
        for item in items:
            yield item
            bar.advance()


def _has_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _make_progress(unit: str) -> Progress:
    """rich's, which is imported only here: it is seldom wanted, and takes a while."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    count = [DownloadColumn()] if unit == BYTES else [MofNCompleteColumn(), TextColumn(unit)]
    return Progress(
        *(TextColumn("{task.description}", markup=False), BarColumn(), *count),
        *(TimeRemainingColumn(), TextColumn("left")),
        console=Console(stderr=True),
        refresh_per_second=REDRAWN_PER_S,
        transient=True,
        redirect_stdout=False,  # it goes where it would have gone: rich would write it to stderr
    )
