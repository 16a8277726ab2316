"""Limits are read from trees of files as Linux shows them, and, where root may make groups, from real ones."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from minisgl.utils.control_groups import CpuLimit, MemoryLimit, cpu_limit, memory_limit

MIB = 1 << 20
NO_LIMIT_V1 = str(2**63 - 4096)
V2 = "41 31 0:38 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate"
V1_MEMORY = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:4 - cgroup cgroup rw,memory"
V1_CPU = "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct"


class Machine:
    """Files below a folder: what /proc/self says, and the trees of control groups."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.system = folder / "proc", folder / "system"
        self.proc.mkdir()

    def says(self, cgroup: str, *mounts: str) -> None:
        (self.proc / "cgroup").write_text(f"{cgroup}\n")
        (self.proc / "mountinfo").write_text(
            "".join(f"{line}\n" for line in ("22 1 0:5 / / rw - ext4 /dev/vda rw", *mounts))
        )

    def group(self, path: str, **files: str | int) -> Path:
        """A folder below /sys/fs/cgroup; in a name of a file `__` stands for the dot."""
        folder = self.system / "sys/fs/cgroup" / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name.replace("__", ".")).write_text(f"{text}\n")
        return folder

    @property
    def memory(self) -> MemoryLimit | None:
        return memory_limit(self.proc, self.system)

    @property
    def cpu(self) -> CpuLimit | None:
        return cpu_limit(self.proc, self.system)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_limits_of_a_systemd_service_count(machine: Machine) -> None:
    machine.says("0::/system.slice/x.service", V2)
    machine.group("", cgroup__controllers="cpu memory")
    machine.group("system.slice", memory__max="max", memory__current=3000 * MIB, cpu__max="max 100000")
    x = {"memory__max": 1536 * MIB, "memory__high": "max", "memory__current": 500 * MIB, "cpu__max": "150000 100000"}
    machine.group("system.slice/x.service", **x)
    assert machine.memory == MemoryLimit(1536 * MIB, 1036 * MIB, "/system.slice/x.service")
    assert machine.cpu == CpuLimit(1.5, "/system.slice/x.service")


def test_a_limit_of_a_group_above_counts_with_what_its_other_groups_use(machine: Machine) -> None:
    machine.says("0::/a/b/c", V2)
    machine.group("a", memory__max=1000 * MIB, memory__current=900 * MIB, cpu__max="200000 100000")
    machine.group("a/b", memory__max="max", memory__current=100 * MIB, cpu__max="50000 100000")
    machine.group("a/b/c", memory__max=2000 * MIB, memory__current=50 * MIB, cpu__max="max 100000")
    machine.group("a/other", memory__max=MIB, memory__current=MIB, cpu__max="1000 100000")
    assert machine.memory == MemoryLimit(1000 * MIB, 100 * MIB, "/a")
    assert machine.cpu == CpuLimit(0.5, "/a/b")


def test_a_group_below_may_have_less_room_than_the_one_with_the_smallest_limit(machine: Machine) -> None:
    machine.says("0::/a/b", V2)
    machine.group("a", memory__max=1000 * MIB, memory__current=100 * MIB)
    machine.group("a/b", memory__max=1200 * MIB, memory__current=1150 * MIB)
    assert machine.memory == MemoryLimit(1000 * MIB, 50 * MIB, "/a")


def test_a_group_is_throttled_above_memory_high_so_that_is_a_limit(machine: Machine) -> None:
    machine.says("0::/x", V2)
    machine.group("x", memory__max=1000 * MIB, memory__high=800 * MIB, memory__current=300 * MIB)
    assert machine.memory == MemoryLimit(800 * MIB, 500 * MIB, "/x")


@pytest.mark.parametrize("text", ["max", "", "a word", NO_LIMIT_V1, "-1"])
def test_no_limit_is_none(machine: Machine, text: str) -> None:
    machine.says("0::/x\n4:memory:/y\n3:cpu:/y", V2, V1_MEMORY, V1_CPU)
    machine.group("x", memory__max=text, memory__high=text, cpu__max="max 100000")
    machine.group("memory/y", memory__limit_in_bytes=text, memory__usage_in_bytes=MIB)
    machine.group("cpu,cpuacct/y", cpu__cfs_quota_us=-1, cpu__cfs_period_us=100000)
    assert machine.memory is None
    assert machine.cpu is None


def test_a_file_that_cannot_be_read_is_no_limit(machine: Machine) -> None:
    machine.says("0::/a/b", V2)
    machine.group("a/b/memory.max")  # a folder: to read it fails for root, too
    machine.group("a/b/cpu.max")
    assert machine.memory is None
    assert machine.cpu is None
    machine.group("a", memory__max=MIB, cpu__max="100000 100000")
    assert machine.memory == MemoryLimit(MIB, MIB, "/a")
    assert machine.cpu == CpuLimit(1.0, "/a")


def test_without_proc_there_is_no_limit(machine: Machine) -> None:
    assert machine.memory is None
    assert machine.cpu is None


def test_version_1_has_each_controller_in_a_tree_of_its_own(machine: Machine) -> None:
    machine.says("9:name=systemd:/z\n4:memory:/docker/m\n3:cpu,cpuacct:/docker/c\n0::/", V1_MEMORY, V1_CPU)
    machine.group("memory", memory__limit_in_bytes=NO_LIMIT_V1, memory__usage_in_bytes=5000 * MIB)
    machine.group("memory/docker", memory__limit_in_bytes=2048 * MIB, memory__usage_in_bytes=1948 * MIB)
    machine.group("memory/docker/m", memory__limit_in_bytes=1024 * MIB, memory__usage_in_bytes=24 * MIB)
    machine.group("cpu,cpuacct/docker", cpu__cfs_quota_us=300000, cpu__cfs_period_us=100000)
    machine.group("cpu,cpuacct/docker/c", cpu__cfs_quota_us=100000, cpu__cfs_period_us=50000)
    assert machine.memory == MemoryLimit(1024 * MIB, 100 * MIB, "/docker/m")
    assert machine.cpu == CpuLimit(2.0, "/docker/c")


def test_both_versions_may_limit_side_by_side(machine: Machine) -> None:
    v2 = V2.replace("/sys/fs/cgroup ", "/sys/fs/cgroup/unified ")
    machine.says("3:cpu,cpuacct:/c\n0::/m", v2, V1_CPU)
    machine.group("unified/m", memory__max=64 * MIB, memory__current=0)
    machine.group("cpu,cpuacct/c", cpu__cfs_quota_us=100000, cpu__cfs_period_us=100000)
    assert machine.memory == MemoryLimit(64 * MIB, 64 * MIB, "/m")
    assert machine.cpu == CpuLimit(1.0, "/c")


@pytest.mark.parametrize(
    ("stat", "free"),
    [
        ({"anon": 300}, 100),
        ({"inactive_file": 200}, 300),
        ({"inactive_file": 200, "active_file": 150, "file_mapped": 50}, 400),
        ({"inactive_file": 200, "active_file": 150, "file_mapped": 340}, 300),  # no more than the inactive ones
        ({"inactive_file": 5000}, 1000),  # never more than the limit
    ],
)
def test_file_cache_that_is_not_mapped_is_free(machine: Machine, stat: dict[str, int], free: int) -> None:
    machine.says("0::/x", V2)
    text = "\n".join(f"{name} {value * MIB}" for name, value in stat.items())
    machine.group("x", memory__max=1000 * MIB, memory__current=900 * MIB, memory__stat=text)
    assert machine.memory == MemoryLimit(1000 * MIB, free * MIB, "/x")


def test_version_1_counts_the_file_cache_of_the_groups_below_under_another_name(machine: Machine) -> None:
    machine.says("4:memory:/x", V1_MEMORY)
    stat = f"inactive_file 0\ntotal_inactive_file {200 * MIB}\ntotal_active_file {MIB}\ntotal_mapped_file 0"
    files = {"memory__limit_in_bytes": 1000 * MIB, "memory__usage_in_bytes": 900 * MIB, "memory__stat": stat}
    machine.group("memory/x", **files)
    assert machine.memory == MemoryLimit(1000 * MIB, 301 * MIB, "/x")


@pytest.mark.parametrize(
    ("path", "root", "name"),
    [
        ("/docker/id", "/docker/id", "/docker/id"),  # the group itself is mounted, as docker does it in version 1
        ("/docker/id/sub", "/docker/id", "/docker/id"),  # and this process is below it
        ("/", "/", "/"),  # a namespace of its own
        ("/", "/../..", "/../.."),  # mounted outside of this namespace: which group is ours is not known
        ("/kubepods/pod/id", "/", "/"),  # the host's path, but the tree begins at the container
        ("/../other", "/", "/"),  # moved out of its namespace
    ],
)
def test_what_is_mounted_counts_where_the_path_leads_nowhere(machine: Machine, path: str, root: str, name: str) -> None:
    machine.says(f"0::{path}", V2.replace(" / /sys", f" {root} /sys"))
    machine.group("", memory__max=100 * MIB, memory__current=MIB, cpu__max="100000 100000")
    assert machine.memory == MemoryLimit(100 * MIB, 99 * MIB, name)
    assert machine.cpu == CpuLimit(1.0, name)


def test_a_group_below_the_mount_is_found_by_the_end_of_a_path_that_begins_elsewhere(machine: Machine) -> None:
    machine.says("0::/kubepods/pod/id/inner", V2)
    machine.group("", memory__max=100 * MIB)
    machine.group("inner", memory__max=50 * MIB)
    assert machine.memory == MemoryLimit(50 * MIB, 50 * MIB, "/inner")


def test_a_mounted_group_of_others_is_not_ours(machine: Machine) -> None:
    others = V2.replace(" / /sys/fs/cgroup ", r" /docker/other /run/their\040group ")
    machine.says("0::/docker/mine", others, V2.replace(" / /sys", " /docker/mine /sys"))
    machine.group("", memory__max=100 * MIB)
    machine.group("../../../run/their group", memory__max=MIB)
    assert machine.memory == MemoryLimit(100 * MIB, 100 * MIB, "/docker/mine")
    machine.says("0::/docker/other", others)
    assert machine.memory == MemoryLimit(MIB, MIB, "/docker/other")


def test_a_tree_at_the_usual_place_counts_though_no_mount_is_named(machine: Machine) -> None:
    machine.says("4:memory:/x\n0::/y")
    machine.group("memory/x", memory__limit_in_bytes=9 * MIB)
    machine.group("y", memory__max=7 * MIB)
    assert machine.memory == MemoryLimit(7 * MIB, 7 * MIB, "/y")


@pytest.fixture
def real_groups() -> Iterator[list[Path]]:
    """Groups of this machine with a limit of 1 GiB and half a core each; they are gone afterwards."""
    root, name = Path("/sys/fs/cgroup"), f"minisgl-test-{uuid.uuid4().hex}"
    if (root / "memory/cgroup.procs").exists():
        files = {"memory": {"memory.limit_in_bytes": 1024 * MIB}, "cpu": {"cpu.cfs_quota_us": 50000}}
        groups = {root / controller / name: limits for controller, limits in files.items()}
    else:
        groups = {root / name: {"memory.max": 1024 * MIB, "cpu.max": "50000 100000"}}
    made: list[Path] = []
    try:
        for group, limits in groups.items():
            group.mkdir()
            made.append(group)
            for file, value in limits.items():
                (group / file).write_text(str(value))
            inner = group / "inner"
            inner.mkdir()
            made.append(inner)
        yield made[1::2]
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    finally:
        for group in reversed(made):
            with suppress(OSError):
                group.rmdir()


def test_doctor_shows_the_limits_of_a_real_group_from_a_group_below_it(real_groups: list[Path]) -> None:
    def enter() -> None:
        for group in real_groups:
            (group / "cgroup.procs").write_text(str(os.getpid()))

    command = [sys.executable, "-m", "minisgl", "doctor"]
    done = subprocess.run(command, preexec_fn=enter, capture_output=True, text=True, check=False)
    lines = {line.partition(" ")[0]: line for line in done.stdout.splitlines()}
    parent = real_groups[0].parent.name
    assert lines["memory"].startswith("memory    1.0 GiB, 0."), done.stderr
    assert " available (limit of control group /" in lines["memory"]
    assert lines["memory"].endswith(f"/{parent})")
    assert "1 core to compute on (limit of control group /" in lines["cpu"]
    assert lines["cpu"].endswith(f"/{parent})")
