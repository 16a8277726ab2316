"""One pinned buffer on the host, one copy to the device a step. See `core.Staging` for what it promises."""

from __future__ import annotations

from typing import Any, NamedTuple

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

    def add(self, values: npt.NDArray[Any], capacity: int | None = None, fill: float = 0) -> torch.Tensor:
        assert capacity is None, "no graphs are captured on a CPU"
        return torch.from_numpy(np.ascontiguousarray(values))

    def send(self) -> None:
        """All values of the step are there."""

    def keep_until(self, event: torch.cuda.Event | None) -> None:
        """Nothing is used twice."""


class _Place(NamedTuple):
    """Where values with a capacity lie each time: on the device, and in each of the host's buffers."""

    device: torch.Tensor
    hosts: list[npt.NDArray[Any]]


class BufferStaging:
    """Implements `core.Staging` for a GPU. `begin`, any number of `add`, `send`, then `keep_until`; each step anew.

    num_bytes: what the buffer holds. Values that do not fit travel by themselves; those with a capacity must fit.
    Calls are few, and what they need is kept: a step goes through them once, with cold caches, and a call into torch
    or NumPy takes several times as long then.
    """

    def __init__(self, num_bytes: int, device: torch.device) -> None:
        is_gpu = device.type == "cuda"  # where not, in tests, there is nothing to pin
        self._num_bytes = num_bytes
        self._device_bytes = torch.empty(num_bytes, dtype=torch.uint8, device=device)
        self._hosts = [torch.empty(num_bytes, dtype=torch.uint8, pin_memory=is_gpu) for _ in range(_RING)]
        self._host_bytes = [host.numpy() for host in self._hosts]
        self._read: list[torch.cuda.Event | None] = [None] * _RING
        self._places: dict[tuple[int, int, np.dtype[Any]], _Place] = {}
        self._turn = 0
        self._used = 0

    def begin(self) -> None:
        self._turn = (self._turn + 1) % _RING
        self._used = 0
        read = self._read[self._turn]
        # Nearly always it has passed: a later step was launched since. To wait would give the interpreter away.
        if read is not None and not read.query():  # type: ignore[no-untyped-call]
            read.synchronize()

    def add(self, values: npt.NDArray[Any], capacity: int | None = None, fill: float = 0) -> torch.Tensor:
        num, count = len(values), len(values) if capacity is None else capacity
        assert num <= count, f"{num} values for a capacity of {count}"
        begin, end = self._used, self._used + count * values.itemsize
        if end > self._num_bytes:
            assert capacity is None, f"a graph wants {end} bytes of a staging buffer of {self._num_bytes}"
            return to_device(values, torch.from_numpy(values[:0]).dtype, self._device_bytes.device)
        self._used = -(-end // _ALIGNMENT) * _ALIGNMENT
        if capacity is None:
            self._host_bytes[self._turn][begin:end].view(values.dtype)[:] = values
            return self._device_bytes[begin:end].view(torch.from_numpy(values[:0]).dtype)
        place = self._places.get((begin, end, values.dtype)) or self._new_place(begin, end, values.dtype)
        host = place.hosts[self._turn]
        host[:num] = values
        host[num:] = fill
        return place.device

    def send(self) -> None:
        """The copy of all values is on its way, in the order of the stream."""
        used = min(self._used, self._num_bytes)
        self._device_bytes[:used].copy_(self._hosts[self._turn][:used], non_blocking=True)

    def keep_until(self, event: torch.cuda.Event | None) -> None:
        """Once the event has passed, the values of this step have been read."""
        self._read[self._turn] = event

    def _new_place(self, begin: int, end: int, dtype: np.dtype[Any]) -> _Place:
        device = self._device_bytes[begin:end].view(torch.from_numpy(np.empty(0, dtype)).dtype)
        place = _Place(device, [host[begin:end].view(dtype) for host in self._host_bytes])
        self._places[begin, end, dtype] = place
        return place


def make_staging(device: torch.device) -> HostStaging | BufferStaging:
    """What brings a step's values to `device`."""
    return BufferStaging(_BUFFER_BYTES, device) if device.type == "cuda" else HostStaging()
