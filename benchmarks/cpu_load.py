"""Who used the processors and the memory: this benchmark with its engines, or others. From Linux's /proc."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")


class OtherLoad:
    """How many cores other processes keep busy, from now on; what a hypervisor takes away counts as theirs."""

    def __init__(self) -> None:
        self._began = self._now()

    @staticmethod
    def _now() -> tuple[float, float, float]:
        return time.monotonic(), _busy_s(), sum(map(_cpu_s, family(os.getpid())))

    def cores(self) -> float:
        wall, busy, own = (now - then for now, then in zip(self._now(), self._began, strict=True))
        return max(0.0, (busy - own) / wall) if wall else 0.0


def resident_bytes(pid: int) -> int:
    """Of a process and its descendants; memory that several share is counted once, by parts."""
    return sum(_pss_bytes(member) for member in family(pid))


def family(pid: int) -> list[int]:
    """A process and its descendants that live."""
    children: dict[int, list[int]] = {}
    for child, fields in _all_stats():
        children.setdefault(int(fields[1]), []).append(child)
    found = [pid]
    for member in found:
        found += children.get(member, [])
    return found


def _all_stats() -> Iterator[tuple[int, list[str]]]:
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # it has ended meanwhile
                yield int(entry.name), _fields(int(entry.name))


def _fields(pid: int) -> list[str]:
    """Of /proc/PID/stat, from the state on: the name before it may hold anything."""
    return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


def _cpu_s(pid: int) -> float:
    """Of a process and those of its children that have ended."""
    with suppress(OSError):
        return sum(map(int, _fields(pid)[11:15])) / TICKS
    return 0.0


def _busy_s() -> float:
    user, nice, system, _idle, _iowait, irq, softirq, stolen = map(
        int, (PROC / "stat").read_text().splitlines()[0].split()[1:9]
    )
    return (user + nice + system + irq + softirq + stolen) / TICKS


def _pss_bytes(pid: int) -> int:
    with suppress(OSError):
        lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return 0
