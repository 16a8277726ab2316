"""What benchmarks measure with: CPU time of calls, resident memory, and the words for the machine they ran on."""

from __future__ import annotations

import ctypes
import gc
import os
import platform
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import thread_time_ns
from typing import ParamSpec, TypeVar

import numpy as np
import torch

P = ParamSpec("P")
R = TypeVar("R")


class Stopwatch:
    """CPU time of calls, in microseconds, less what reading the clock takes."""

    def __init__(self) -> None:
        pairs = [-(thread_time_ns() - thread_time_ns()) for _ in range(10_000)]
        self._overhead_ns = median(pairs)
        self.times: list[float] = []

    def __call__(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        start = thread_time_ns()
        result = call(*args, **kwargs)
        self.times.append((thread_time_ns() - start - self._overhead_ns) / 1e3)
        return result


def resident_bytes() -> int:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def compare_us() -> float:
    """Microseconds to compare two equal sequences of 100,000 int32 tokens."""
    watch, key = Stopwatch(), np.arange(100_000, dtype=np.int32).tobytes()
    other = bytearray(key)
    for _ in range(300):
        watch(key.startswith, other)
    return median(watch.times)


def machine() -> str:
    """The processor and the versions, in one line."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    processor = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown CPU")
    versions = f"Python {platform.python_version()}, NumPy {np.__version__}, torch {torch.__version__}"
    return f"{processor}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {versions}"
