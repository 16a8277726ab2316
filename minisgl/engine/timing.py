"""When a device worked for a batch, on the host's clock (`time.perf_counter`)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import torch

from minisgl.core import BatchOutput, BatchResult

Span = tuple[float, float]


class TimedOutput:
    """A launched batch whose result says besides when the device worked for it. Implements `core.BatchOutput`."""

    def __init__(self, output: BatchOutput, span: Callable[[], Span]) -> None:
        """span: asked once the result is there."""
        self._output = output
        self._span = span

    def result(self) -> BatchResult:
        return replace(self._output.result(), device_s=self._span())


class HostTimer:
    """Of a host that computes in the place of a device: a launch is the work."""

    def begin(self) -> Callable[[], Callable[[], Span]]:
        """The work of a batch begins. To be called again when it is launched; gives what gives the times."""
        began = time.perf_counter()

        def end() -> Callable[[], Span]:
            span = began, time.perf_counter()
            return lambda: span

        return end


class DeviceTimer:
    """Of a GPU, by CUDA events. One that the host waits for says at first what the device's clock shows.

    From then on the time between two batches is the device's; where that would have a batch begin before its launch or
    end after its end was seen, as the two clocks drift apart, the host is right.
    """

    def __init__(self) -> None:
        self._last: tuple[torch.cuda.Event, float] | None = None  # when the batch before ended

    def begin(self) -> Callable[[], Callable[[], Span]]:
        if self._last is None:
            event = _mark()
            event.synchronize()
            self._last = event, time.perf_counter()
        launched_at, begin = time.perf_counter(), _mark()

        def end() -> Callable[[], Span]:
            event = _mark()
            return lambda: self._span(begin, event, launched_at)

        return end

    def _span(self, begin: torch.cuda.Event, end: torch.cuda.Event, launched_at: float) -> Span:
        end.synchronize()
        seen_at = time.perf_counter()
        assert self._last is not None
        last, last_s = self._last
        took = begin.elapsed_time(end) / 1000
        end_s = min(max(last_s + last.elapsed_time(begin) / 1000, launched_at) + took, seen_at)
        self._last = end, end_s
        return max(end_s - took, last_s), end_s


def _mark() -> torch.cuda.Event:
    event: torch.cuda.Event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event
