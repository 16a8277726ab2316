"""Building the C++ kernels: once, and never in the way of those who have no compiler."""

from __future__ import annotations

import logging
import stat
from pathlib import Path

import pytest
import torch

from minisgl import kernel
from minisgl.env import ENV
from minisgl.kernel import cpu_build, cpu_library
from minisgl.utils.hardware import find_compiler


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Nothing loaded, nothing built."""
    monkeypatch.setattr(ENV.CACHE_DIR, "value", tmp_path)
    cpu_library.functions.cache_clear()
    yield
    cpu_library.functions.cache_clear()


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def fake_compiler(folder: Path) -> str:
    """Notes every run in folder/runs, and writes what it is to write."""
    lines = (
        f'echo "$@" >> {folder}/runs\nwhile [ $# -gt 1 ]; do if [ "$1" = -o ]; then echo built > "$2"; fi; shift; done'
    )
    return script(folder / "c++", lines)


def test_the_second_build_finds_the_first(tmp_path: Path):
    compiler = fake_compiler(tmp_path)
    first, second = (cpu_build.build(compiler, tmp_path / "cache") for _ in range(2))
    assert first == second
    assert first.read_text() == "built\n"
    assert sum(" -o " in run for run in (tmp_path / "runs").read_text().splitlines()) == 1


def test_other_sources_are_built_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    sources = tmp_path / "csrc"
    sources.mkdir()
    (sources / "cpu.cpp").write_text("int one;")
    monkeypatch.setattr(cpu_build, "SOURCES", sources)
    before = cpu_build.build(fake_compiler(tmp_path), tmp_path / "cache")
    (sources / "cpu.cpp").write_text("int two;")
    assert cpu_build.build(fake_compiler(tmp_path), tmp_path / "cache") != before


@pytest.mark.skipif(not cpu_build.IS_X86, reason="only x86 has these")
def test_an_instruction_set_has_a_library_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cpu_build, "cpu_flags", lambda: frozenset(cpu_build.INSTRUCTION_SETS["avx512"][1]))
    compiler = fake_compiler(tmp_path)
    libraries = {cpu_build.build(compiler, tmp_path / "cache", isa) for isa in cpu_build.INSTRUCTION_SETS}
    assert len(libraries) == 4


@pytest.mark.parametrize("is_x86", [True, False])
def test_an_instruction_set_that_the_processor_lacks_is_refused(
    is_x86: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(cpu_build, "IS_X86", is_x86)
    monkeypatch.setattr(cpu_build, "cpu_flags", lambda: frozenset({"avx2", "fma", "f16c", "bmi1", "movbe"}))
    with pytest.raises(
        ValueError, match="MINISGL_CPU_ISA='avx2': this processor lacks " + ("bmi2" if is_x86 else "x86")
    ):
        cpu_build.build(fake_compiler(tmp_path), tmp_path / "cache", "avx2")
    assert not (tmp_path / "runs").exists()
    assert cpu_build.build(fake_compiler(tmp_path), tmp_path / "cache", "portable").exists()


def test_a_failure_quotes_the_compilers_last_lines_and_leaves_no_library(tmp_path: Path):
    failing = script(tmp_path / "c++", 'case "$*" in *-dM*) exit 0;; esac\necho "no such thing as a float" >&2\nexit 1')
    with pytest.raises(cpu_build.BuildError, match="no such thing as a float"):
        cpu_build.build(failing, tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob("*.so"))


@pytest.mark.usefixtures("fresh")
def test_without_a_working_compiler_torch_does_it_and_the_log_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(ENV.KERNELS, "value", "auto")
    monkeypatch.setattr(cpu_library, "find_compiler", lambda: script(tmp_path / "c++", "echo out of order >&2; exit 1"))
    with caplog.at_level(logging.WARNING):
        out = kernel.silu_and_mul(torch.ones(1, 2))
    torch.testing.assert_close(out, torch.tensor([[0.7310586]]))
    assert "out of order" in caplog.text
    assert not kernel.has_cpp(out)


@pytest.mark.usefixtures("fresh")
def test_torch_can_be_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ENV.KERNELS, "value", "torch")
    assert not kernel.has_cpp(torch.ones(1))
    assert not list(tmp_path.rglob("*"))


@pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler")
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="cannot see what is loaded here")
@pytest.mark.usefixtures("fresh")
def test_the_library_brings_no_openmp_runtime(monkeypatch: pytest.MonkeyPatch):
    """A second one beside torch's would be one more pool of threads that fight for the cores."""
    monkeypatch.setattr(ENV.KERNELS, "value", "auto")
    before = openmp_runtimes()
    assert kernel.has_cpp(torch.ones(1))
    assert openmp_runtimes() == before


def openmp_runtimes() -> set[str]:
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.split()[-1] for line in lines if "libgomp" in line or "libomp" in line}
