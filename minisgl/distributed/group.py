"""The processes that share one model, and what they can do together. Nothing here is global to a process.

torch's own default group is left alone, so that several engines, and whatever else uses torch.distributed, live beside
each other. One process a GPU: NCCL; on a CPU: gloo. All ranks are on one machine.
"""

from __future__ import annotations

import os
import threading
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

HOST = "127.0.0.1"
ABORT_S = 5.0
_c10d: Any = dist  # half of what is used here is in no type stub; none of it is in builds without torch.distributed
_NCCL_DEFAULTS = {
    # Who started the ranks decides what becomes of one that waits for ever: NCCL's own watchdog ends the process.
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    "NCCL_SOCKET_IFNAME": "lo",  # the ranks are on one machine, so nobody else need reach their ports
}


class Meeting:
    """Where the ranks find each other: rank 0 opens it with port 0, the others are told its `port`."""

    def __init__(self, port: int = 0, timeout_s: float = 60.0) -> None:
        timeout = timedelta(seconds=timeout_s)
        self._store = _c10d.TCPStore(HOST, port, None, is_master=port == 0, wait_for_workers=False, timeout=timeout)
        self.port: int = self._store.port

    def join(self, rank: int, size: int, device: torch.device, timeout_s: float) -> RankGroup:
        """The group, once all `size` ranks are there. timeout_s: how long a collective may take, with gloo."""
        make = _make_nccl if device.type == "cuda" else _make_gloo
        group = RankGroup(make(self._store, rank, size, timedelta(seconds=timeout_s)), size, device)
        group.least(0)  # NCCL connects at the first call, and whoever cannot shall say so now
        return group


class RankGroup:
    """Collectives: every rank must make the same calls in the same order. RuntimeError when a rank is gone.

    num_calls: how many were made, so that ranks can tell whether they stopped at the same one. On a GPU nothing waits
    and nothing but the result is allocated: all of it may be captured in a CUDA graph.
    """

    def __init__(self, backend: Any, size: int, device: torch.device) -> None:
        self.size = size
        self.device = device
        self.num_calls = 0
        self._backend = backend
        self._sum, self._gather = _c10d.AllreduceOptions(), _c10d.distributed_c10d.AllgatherOptions()
        self._sum.asyncOp = self._gather.asyncOp = False  # NCCL: in the stream of the caller

    def all_reduce(self, x: torch.Tensor) -> None:
        """Every rank's `x`, which is contiguous, becomes the sum of all."""
        self._wait(self._backend.allreduce([x], self._sum))

    def all_gather(self, x: torch.Tensor) -> torch.Tensor:
        """Every rank's `x` [N, ...], in order of rank: [size, N, ...]."""
        out = x.new_empty(self.size * len(x), *x.shape[1:])
        self._wait(self._backend._allgather_base(out, x.contiguous(), self._gather))
        return out.view(self.size, *x.shape)

    def least(self, value: int) -> int:
        """The least of every rank's value."""
        options = _c10d.AllreduceOptions()
        options.reduceOp = _c10d.ReduceOp.MIN
        found = torch.tensor([value], device=self.device)
        self._wait(self._backend.allreduce([found], options))
        return int(found)

    def abort(self) -> None:
        """Whoever waits in a collective on a GPU, in any thread, gets an error, or garbage. No call may follow.

        NCCL stops its kernels at once; then it waits for the graphs that call it to go, and this for a few seconds.
        """
        if self.device.type == "cuda":  # with gloo the end of a peer is an error already
            thread = threading.Thread(target=self._backend.abort, name="minisgl-abort", daemon=True)
            thread.start()
            thread.join(ABORT_S)

    def _wait(self, work: Any) -> None:
        self.num_calls += 1
        if work is not None:
            work.wait()


def _make_gloo(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    options = _c10d.ProcessGroupGloo._Options()
    options._devices = [_c10d.ProcessGroupGloo.create_device(hostname=HOST)]
    options._timeout = timeout
    return _c10d.ProcessGroupGloo(store, rank, size, options)


def _make_nccl(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    for name, value in _NCCL_DEFAULTS.items():
        os.environ.setdefault(name, value)
    options = _c10d.ProcessGroupNCCL.Options()
    options._timeout = timeout
    return _c10d.ProcessGroupNCCL(store, rank, size, options)
