"""Ctrl-C that ends what is being generated, and nothing else."""

from __future__ import annotations

import signal
from collections.abc import Generator, Iterator
from types import FrameType, TracebackType
from typing import Any, TypeVar

T = TypeVar("T")


class Interrupt:
    """While entered (main thread only), the first Ctrl-C only sets `pressed`: the next chunk is still taken whole.

    A second one, of somebody who does not want to wait for that chunk, is a KeyboardInterrupt as usual.
    """

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
    except KeyboardInterrupt:
        return
    finally:
        chunks.close()
