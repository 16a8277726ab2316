"""Ctrl-C that asks first: an exception in the middle of a forward pass would leave the engine half-way."""

from __future__ import annotations

import signal
from collections.abc import Generator, Iterator
from types import FrameType, TracebackType
from typing import Any, TypeVar

T = TypeVar("T")


class Interrupt:
    """While entered (main thread only), the first Ctrl-C only sets `pressed`; a second one is a KeyboardInterrupt."""

    def __init__(self) -> None:
        self.pressed = False
        self._before: Any = None

    def __enter__(self) -> Interrupt:
        self.pressed = False
        self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True


def until_interrupted(chunks: Generator[T], interrupt: Interrupt) -> Iterator[T]:
    """The chunks as long as Ctrl-C was not pressed; then `chunks` is closed, which aborts what it generates."""
    try:
        for chunk in chunks:
            yield chunk
            if interrupt.pressed:
                return
    finally:
        chunks.close()
