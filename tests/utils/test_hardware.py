from pathlib import Path

import pytest

from minisgl.utils import hardware


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def own_group(folder: Path) -> Path:
    """The folder of this process's control group, in a tree below `folder`."""
    write(folder / "cgroup", "0::/a/service\n")
    group = folder / "sys/fs/cgroup/a/service"
    group.mkdir(parents=True)
    return group


def test_two_cpus_of_one_core_are_one_and_the_control_groups_share_of_time_is_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(hardware, "_allowed_cpus", lambda: {0, 1, 2, 5})
    here = (tmp_path, tmp_path, tmp_path)
    assert hardware.physical_cores(*here) == 4  # nothing is known
    for cpu, siblings in ((0, "0,4"), (1, "1,5"), (2, "2,6"), (5, "1,5")):
        (tmp_path / f"cpu{cpu}/topology").mkdir(parents=True)
        write(tmp_path / f"cpu{cpu}/topology/thread_siblings_list", siblings)
    assert hardware.physical_cores(*here) == 3
    group = own_group(tmp_path)
    for limit, cores in (("max 100000", 3), ("250000 100000", 2), ("50000 100000", 1), ("900000 100000", 3)):
        write(group / "cpu.max", f"{limit}\n")
        assert hardware.physical_cores(*here) == cores


def test_cpus_are_told_apart_by_the_memory_that_is_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hardware, "_allowed_cpus", lambda: {0, 1, 5, 6, 7, 12})
    assert hardware.memory_nodes(tmp_path) == ({0, 1, 5, 6, 7, 12},)  # nothing is known
    for node, cpus in ((0, "0-3\n"), (1, "4-7,12\n"), (2, "8-11\n"), (10, "\n")):
        (tmp_path / f"node{node}").mkdir()
        write(tmp_path / f"node{node}/cpulist", cpus)
    assert hardware.memory_nodes(tmp_path) == ({5, 6, 7, 12}, {0, 1})


def test_memory_heeds_the_limit_of_the_control_group(tmp_path: Path):
    here = (write(tmp_path / "meminfo", "MemTotal: 8000 kB\nMemAvailable: 6000 kB\n"), tmp_path, tmp_path)
    assert hardware._read_memory(*here) == (8000 * 1024, 6000 * 1024, None)
    group = own_group(tmp_path)
    write(group / "memory.max", "max\n")
    assert hardware._read_memory(*here) == (8000 * 1024, 6000 * 1024, None)
    write(group / "memory.max", "4096000\n")
    write(group / "memory.current", "3000000\n")
    assert hardware._read_memory(*here) == (4096000, 1096000, "/a/service")
    write(group / "memory.stat", "anon 2000000\ninactive_file 1000000\n")
    assert hardware._read_memory(*here) == (4096000, 2096000, "/a/service")
    write(group / "memory.max", "9000000000\n")
    assert hardware._read_memory(*here) == (8000 * 1024, 6000 * 1024, None)


def test_this_machine_is_described_whole():
    found = hardware.find_hardware()
    assert found.num_cores >= 1
    assert 0 < found.available_bytes <= found.memory_bytes
    assert found.torch_version
    assert found.torch_build


def test_features_that_matter_are_named_in_one_order(monkeypatch: pytest.MonkeyPatch):
    flags = ("fpu", "avx512_bf16", "unheard_of", "avx2")
    monkeypatch.setattr(hardware, "read_cpuinfo", lambda: ("Some CPU", flags))
    found = hardware.find_hardware()
    assert found.cpu_name == "Some CPU"
    assert found.cpu_features == ("avx2", "avx512_bf16")
    assert found.has_fast_bfloat16
