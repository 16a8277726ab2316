"""One pinned buffer on the host, one copy to the device a step. See `core.Staging` for what it promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from minisgl.engine.transfer import to_device

_ALIGNMENT = 16  # bytes: what a vectorised load wants
_BUFFER_BYTES = 4 << 20
_RING = 2  # while one step's copy waits for its turn on the device, the next step is written


class HostStaging:
    """Where the device is the host, nothing has to travel. Implements `core.Staging`."""

    def begin(self) -> None:
        """A new step."""

    def add(self, values: npt.NDArray[Any], capacity: int | None = None) -> torch.Tensor:
        assert capacity is None, "no graphs are captured on a CPU"
        return torch.from_numpy(np.ascontiguousarray(values))

    def send(self) -> None:
        """All values of the step are there."""


class BufferStaging:
    """Implements `core.Staging` for a GPU. `begin`, any number of `add`, then `send`; each step anew.

    num_bytes: what the buffer holds. Values that do not fit travel by themselves; those with a capacity must fit.
    """

    def __init__(self, num_bytes: int, device: torch.device) -> None:
        is_gpu = device.type == "cuda"  # where not, in tests, there is nothing to pin and nothing to wait for
        self._num_bytes = num_bytes
        self._device_bytes = torch.empty(num_bytes, dtype=torch.uint8, device=device)
        self._hosts = [torch.empty(num_bytes, dtype=torch.uint8, pin_memory=is_gpu) for _ in range(_RING)]
        self._host_bytes = [host.numpy() for host in self._hosts]
        self._sent: list[torch.cuda.Event | None] = [None] * _RING
        self._views: dict[tuple[int, int, np.dtype[Any]], torch.Tensor] = {}  # with a capacity, which come every step
        self._turn = 0
        self._used = 0

    def begin(self) -> None:
        self._turn = (self._turn + 1) % _RING
        self._used = 0
        if (sent := self._sent[self._turn]) is not None:
            sent.synchronize()  # long done: the step after it was launched in the meantime

    def add(self, values: npt.NDArray[Any], capacity: int | None = None) -> torch.Tensor:
        count = len(values) if capacity is None else capacity
        assert len(values) <= count, f"{len(values)} values for a capacity of {count}"
        begin, end = self._used, self._used + count * values.itemsize
        if end > self._num_bytes:
            assert capacity is None, f"a graph wants {end} bytes of a staging buffer of {self._num_bytes}"
            return to_device(values, torch.from_numpy(values[:0]).dtype, self._device_bytes.device)
        self._host_bytes[self._turn][begin : begin + values.nbytes].view(values.dtype)[:] = values
        self._used = -(-end // _ALIGNMENT) * _ALIGNMENT
        return self._view(begin, end, values.dtype, keep=capacity is not None)

    def send(self) -> None:
        """The copy of all values is on its way, in the order of the stream."""
        used = min(self._used, self._num_bytes)
        self._device_bytes[:used].copy_(self._hosts[self._turn][:used], non_blocking=True)
        if self._device_bytes.is_cuda:
            self._sent[self._turn] = torch.cuda.current_stream().record_event()

    def _view(self, begin: int, end: int, dtype: np.dtype[Any], keep: bool) -> torch.Tensor:
        key = (begin, end, dtype)
        view = self._views.get(key)
        if view is None:
            view = self._device_bytes[begin:end].view(torch.from_numpy(np.empty(0, dtype)).dtype)
            if keep:
                self._views[key] = view
        return view


def make_staging(device: torch.device) -> HostStaging | BufferStaging:
    """What brings a step's values to `device`."""
    return BufferStaging(_BUFFER_BYTES, device) if device.type == "cuda" else HostStaging()
