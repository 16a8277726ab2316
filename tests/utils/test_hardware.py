from pathlib import Path

import pytest

from minisgl.utils import hardware

CPUINFO = """processor\t: 0
model name\t: Some CPU @ 2.0GHz
flags\t\t: fpu avx2 avx512f avx512_bf16 unheard_of

processor\t: 1
model name\t: Some CPU @ 2.0GHz
flags\t\t: fpu avx2 avx512f avx512_bf16 unheard_of
"""


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_cpuinfo_gives_the_name_and_the_features_that_matter(tmp_path: Path):
    name, features = hardware._read_cpuinfo(write(tmp_path / "cpuinfo", CPUINFO))
    assert name == "Some CPU @ 2.0GHz"
    assert features == ("avx2", "avx512f", "avx512_bf16")


def test_cpuinfo_gives_every_feature_if_none_is_named(tmp_path: Path):
    assert hardware._read_cpuinfo(write(tmp_path / "cpuinfo", CPUINFO), known=None)[1][-1] == "unheard_of"


def test_without_cpuinfo_no_feature_is_claimed(tmp_path: Path):
    assert hardware._read_cpuinfo(tmp_path / "missing")[1] == ()


def test_two_cpus_of_one_core_are_one_and_the_control_groups_share_of_time_is_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(hardware, "_allowed_cpus", lambda: {0, 1, 2, 5})
    assert hardware.physical_cores(tmp_path, tmp_path) == 4  # nothing is known
    for cpu, siblings in ((0, "0,4"), (1, "1,5"), (2, "2,6"), (5, "1,5")):
        (tmp_path / f"cpu{cpu}/topology").mkdir(parents=True)
        write(tmp_path / f"cpu{cpu}/topology/thread_siblings_list", siblings)
    assert hardware.physical_cores(tmp_path, tmp_path) == 3
    for limit, cores in (("max 100000", 3), ("250000 100000", 2), ("50000 100000", 1), ("900000 100000", 3)):
        write(tmp_path / "cpu.max", f"{limit}\n")
        assert hardware.physical_cores(tmp_path, tmp_path) == cores


def test_memory_heeds_the_limit_of_the_control_group(tmp_path: Path):
    proc = write(tmp_path / "meminfo", "MemTotal: 8000 kB\nMemAvailable: 6000 kB\n")
    assert hardware._read_memory(proc, tmp_path) == (8000 * 1024, 6000 * 1024)
    write(tmp_path / "memory.max", "max\n")
    assert hardware._read_memory(proc, tmp_path) == (8000 * 1024, 6000 * 1024)
    write(tmp_path / "memory.max", "4096000\n")
    write(tmp_path / "memory.current", "3000000\n")
    assert hardware._read_memory(proc, tmp_path) == (4096000, 1096000)
    write(tmp_path / "memory.stat", "anon 2000000\ninactive_file 1000000\n")
    assert hardware._read_memory(proc, tmp_path) == (4096000, 2096000)


def test_this_machine_is_described_whole():
    found = hardware.find_hardware()
    assert found.num_cores >= 1
    assert 0 < found.available_bytes <= found.memory_bytes
    assert found.torch_version
    assert found.torch_build


def test_the_compiler_that_cxx_names_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    compiler = write(tmp_path / "mycc", "#!/bin/sh\necho mycc 1.2\necho more\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    assert hardware.find_compiler() == str(compiler)
    assert hardware.compiler_version(str(compiler)) == "mycc 1.2"


def test_no_compiler_is_found_where_there_is_none(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")
    assert hardware.find_compiler() is None
