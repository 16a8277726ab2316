"""Limits of memory and of CPU time that Linux control groups (cgroups) set for this process.

A limit holds for a group and for all below it, so the smallest one between the process's own group and the root of the
mount counts. Both versions are read, also side by side: https://docs.kernel.org/admin-guide/cgroup-v2.html, and v1's
pages beside it. What is missing, unreadable or unlimited ("max", or v1's largest multiple of a page) is no limit.
Standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_UNLIMITED = 1 << 62  # bytes; v1 says 2**63 less a page where there is no limit, and others have rounded that
_ESCAPED = re.compile(r"\\([0-7]{3})")  # a space in a path of mountinfo is \040


@dataclass(frozen=True)
class MemoryLimit:
    """limit_bytes: the smallest limit on the way. free_bytes: what can still be taken below all of them. group: path of
    the group that has the smallest limit, as in "/system.slice/x.service"."""

    limit_bytes: int
    free_bytes: int
    group: str


@dataclass(frozen=True)
class CpuLimit:
    """cores: CPU time per time, such as 1.5. group: path of the group that has the smallest limit."""

    cores: float
    group: str


@dataclass(frozen=True)
class _Group:
    """One group. name: its path as far as it is known. is_v2: which files it has."""

    folder: Path
    name: str
    is_v2: bool


@dataclass(frozen=True)
class _Mount:
    """A mounted hierarchy. root: path of the group that is mounted at `point`. controllers: of v1; none for v2."""

    point: Path
    root: PurePosixPath
    controllers: frozenset[str]
    is_v2: bool


def memory_limit(proc: Path = Path("/proc/self"), system: Path = Path("/")) -> MemoryLimit | None:
    """The limit of memory, or None where there is none.

    memory.high counts as memory.max does: a process above it is throttled until it stands still. proc: the folder with
    `cgroup` and `mountinfo`. system: the folder below which mount points are looked for.
    """
    limits = [limit for group in _own_groups("memory", proc, system) if (limit := _memory_of(group)) is not None]
    if not limits:
        return None
    tightest = min(limits, key=lambda limit: limit.limit_bytes)
    return MemoryLimit(tightest.limit_bytes, min(limit.free_bytes for limit in limits), tightest.group)


def cpu_limit(proc: Path = Path("/proc/self"), system: Path = Path("/")) -> CpuLimit | None:
    """The limit of CPU time, or None where there is none. Arguments as of `memory_limit`."""
    limits = [limit for group in _own_groups("cpu", proc, system) if (limit := _cpu_of(group)) is not None]
    return min(limits, key=lambda limit: limit.cores, default=None)


def _memory_of(group: _Group) -> MemoryLimit | None:
    if group.is_v2:
        found = [_number(group.folder / "memory.max"), _number(group.folder / "memory.high")]
        used, prefix = _number(group.folder / "memory.current") or 0, ""
    else:
        found = [_number(group.folder / "memory.limit_in_bytes")]
        used, prefix = _number(group.folder / "memory.usage_in_bytes") or 0, "total_"
    limits = [limit for limit in found if limit is not None and limit < _UNLIMITED]
    if not limits:
        return None
    taken = max(used - _reclaimable(group.folder / "memory.stat", prefix), 0)
    return MemoryLimit(min(limits), max(min(limits) - taken, 0), group.name)


def _reclaimable(stat: Path, prefix: str) -> int:
    """Bytes of file cache that count as used but are given up when memory is asked for.

    Files that are mapped are in use, program code among them: to give them up means to read them again and again. What
    is on the inactive list goes first anyway. prefix: v1 counts the groups below under names of their own.
    """
    fields = dict(line.split(maxsplit=1) for line in (_read(stat) or "").splitlines() if " " in line)
    values = {name: int(value) for name, value in fields.items() if value.strip().isdigit()}
    inactive, active, mapped = (
        values.get(prefix + name, 0)
        for name in ("inactive_file", "active_file", "mapped_file" if prefix else "file_mapped")
    )
    return max(inactive, inactive + active - mapped)


def _cpu_of(group: _Group) -> CpuLimit | None:
    if group.is_v2:
        most, _, period = (_read(group.folder / "cpu.max") or "max").strip().partition(" ")
    else:
        most, period = (_read(group.folder / f"cpu.cfs_{name}_us") or "" for name in ("quota", "period"))
    try:
        quota, length = int(most), int(period or 100_000)
    except ValueError:  # "max", or nothing
        return None
    return CpuLimit(quota / length, group.name) if quota > 0 and length > 0 else None


def _own_groups(controller: str, proc: Path, system: Path) -> Iterator[_Group]:
    """The groups of this process that may limit what `controller` governs, each with all above it."""
    mounts = list(_mounts(proc, system))
    for path, is_v2 in _own_paths(controller, proc):
        fitting = [mount for mount in mounts if mount.is_v2 == is_v2 and (is_v2 or controller in mount.controllers)]
        # A subtree that is not ours may be mounted, too, as those of other containers are.
        own = [mount for mount in fitting if path.is_relative_to(mount.root)] or fitting
        usual = _usual_mount(controller, is_v2, system)
        if all(mount.point != usual.point for mount in mounts):
            own.append(usual)
        for mount in own:
            yield from _way_up(mount, path)


def _own_paths(controller: str, proc: Path) -> Iterator[tuple[PurePosixPath, bool]]:
    """Path of the own group, and whether it is of version 2.

    Lines are such as "4:memory:/docker/id" and "0::/user.slice".
    """
    for line in (_read(proc / "cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        is_v2 = number == "0" and not controllers
        if is_v2 or controller in controllers.split(","):
            yield PurePosixPath(path), is_v2


def _mounts(proc: Path, system: Path) -> Iterator[_Mount]:
    """Every mounted hierarchy.

    Lines are such as "41 31 0:38 /docker/id /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory".
    """
    for line in (_read(proc / "mountinfo") or "").splitlines():
        before, _, after = line.partition(" - ")
        fields, (kind, _, options, *_) = before.split(" "), [*after.split(" "), "", "", ""]
        if kind not in ("cgroup", "cgroup2") or len(fields) < 5:
            continue
        root, point = (_ESCAPED.sub(lambda found: chr(int(found[1], 8)), field) for field in fields[3:5])
        controllers = frozenset(options.split(",")) if kind == "cgroup" else frozenset[str]()
        yield _Mount(system / point.lstrip("/"), PurePosixPath(root), controllers, kind == "cgroup2")


def _usual_mount(controller: str, is_v2: bool, system: Path) -> _Mount:
    """Where a hierarchy lies by custom; a system may not say."""
    point = system / "sys/fs/cgroup"
    return _Mount(point if is_v2 else point / controller, PurePosixPath("/"), frozenset([controller]), is_v2)


def _way_up(mount: _Mount, path: PurePosixPath) -> Iterator[_Group]:
    """The group at `path` and those above it, up to the one that is mounted.

    The path may lead elsewhere: the process was moved out of its container's namespace, or the hierarchy is mounted as
    another namespace sees it. Then the longest end of the path that is a folder is taken, or only what is mounted.
    """
    parts = path.relative_to(mount.root).parts if path.is_relative_to(mount.root) else path.parts[1:]
    parts = tuple(part for part in parts if part != "..")
    if not (mount.point.joinpath(*parts)).is_dir():
        ends = (parts[start:] for start in range(1, len(parts)))
        parts = next((end for end in ends if mount.point.joinpath(*end).is_dir()), parts)
    for length in range(len(parts), -1, -1):
        name = mount.root.joinpath(*parts[:length])
        yield _Group(mount.point.joinpath(*parts[:length]), str(name), mount.is_v2)


def _number(path: Path) -> int | None:
    """None where the file is missing, unreadable or says "max"."""
    text = (_read(path) or "").strip()
    return int(text) if text.isdigit() else None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return None
