"""The threads of the C++ kernels where the system gives a process less than it asks for."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support.needs import CPP_KERNELS

from minisgl.kernel import cpu_ops
from minisgl.kernel.grouped import pack_groups
from minisgl.utils.grouped_tensor import GroupedTensor

resource = pytest.importorskip("resource")
pytestmark = [
    CPP_KERNELS,
    pytest.mark.usefixtures("threads_as_before"),
    pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]

NOBODY = 65534
X = torch.randn(700, 1000, generator=torch.Generator().manual_seed(0))


def test_threads_beyond_the_cores_that_the_process_may_use_change_nothing():
    torch.set_num_threads(8)
    expected, before = cpu_ops.silu_and_mul(X), os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert torch.equal(cpu_ops.silu_and_mul(X), expected)
    finally:
        os.sched_setaffinity(0, before)


def in_a_fork(check: Callable[[], None]) -> None:
    child = os.fork()
    if child == 0:
        try:
            check()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_a_fork_computes_without_the_threads_that_it_did_not_get():
    torch.set_num_threads(3)
    expected = cpu_ops.silu_and_mul(X)

    def check() -> None:
        assert bytes(cpu_ops.silu_and_mul(X).numpy()) == bytes(expected.numpy())

    in_a_fork(check)


def test_a_thread_that_cannot_be_started_is_done_without():
    torch.set_num_threads(2)
    expected = cpu_ops.silu_and_mul(X)

    def check() -> None:
        if os.geteuid() == 0:
            os.setuid(NOBODY)  # the limit is none for root
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        with pytest.raises(RuntimeError, match="can't start new thread"):
            threading.Thread(target=print).start()
        for _ in range(3):
            assert bytes(cpu_ops.silu_and_mul(X).numpy()) == bytes(expected.numpy())

    in_a_fork(check)


def test_a_call_that_finds_no_memory_says_so_and_the_next_one_does_its_work():
    """Each thread wants 64 MB for itself, more than malloc has in store for one."""
    torch.set_num_threads(2)
    inputs, rows = 1 << 19, 13
    scales = torch.full((64, inputs // 32), 2.0**-19)
    codes = torch.ones(64, inputs, dtype=torch.uint8)
    layer = pack_groups([GroupedTensor(codes, scales, torch.zeros_like(scales), bits=4)], torch.float32)
    x = torch.ones(rows, inputs)

    def check() -> None:
        cpu_ops.silu_and_mul(X)  # starts the threads
        ctypes.CDLL(None).malloc_trim(0)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 20), resource.RLIM_INFINITY))
        for _ in range(2):
            with pytest.raises(MemoryError):
                layer.multiply(x)
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert bytes(layer.multiply(x).numpy()) == bytes(torch.ones(rows, 64).numpy())

    in_a_fork(check)
