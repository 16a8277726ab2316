"""Kernels that run beside one another on a GPU; on a CPU they run in turn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class SideStream:
    """A second stream, whose kernels find a place on the GPU before those of the first one."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device, priority=-1) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    @contextmanager
    def branch(self) -> Iterator[None]:
        """What is launched inside runs after all before, and beside what follows it until `join`."""
        if self._stream is None:
            yield
            return
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            yield

    def join(self) -> None:
        """What is launched from now on runs after both."""
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)
