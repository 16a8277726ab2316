"""Finding or building the C++ kernels: once, and never in the way of those who have no compiler."""

from __future__ import annotations

import ctypes
import logging
import re
from pathlib import Path

import pytest
import torch
from support.compilers import compilations, fake_compiler, script

from minisgl import kernel
from minisgl.env import ENV
from minisgl.kernel import cpu_build, cpu_levels, cpu_library
from minisgl.kernel.cpu_build import Library, find_library

ON_X86 = pytest.mark.skipif(cpu_levels.MACHINE != "x86_64", reason="names what x86 has")
ZEN_4 = frozenset(cpu_levels.levels("x86_64")["avx512"].needs)


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Nothing loaded, nothing built."""
    monkeypatch.setattr(ENV.CACHE_DIR, "value", tmp_path)
    monkeypatch.setattr(cpu_levels, "SHIPPED", tmp_path)
    cpu_library.functions.cache_clear()
    yield
    cpu_library.functions.cache_clear()


class Machine:
    """One with a compiler, a package and a processor as the test wants them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._monkeypatch = folder, monkeypatch
        self._shipped, self._sources = folder / "compiled", folder / "csrc"
        self._shipped.mkdir()
        self._sources.mkdir()
        self.edit("int one;")
        monkeypatch.setattr(cpu_levels, "SHIPPED", self._shipped)
        monkeypatch.setattr(cpu_levels, "SOURCES", self._sources)
        monkeypatch.setattr(cpu_build, "cpu_flags", lambda: ZEN_4)
        monkeypatch.setattr(ctypes, "CDLL", self._load)
        self.has(fake_compiler(folder))

    def has(self, compiler: str | None) -> None:
        self._monkeypatch.setattr(cpu_build, "find_compiler", lambda: compiler)

    def edit(self, source: str) -> None:
        (self._sources / "cpu.cpp").write_text(source)

    def ship(self, isa: str, content: str = "library") -> None:
        (self._shipped / cpu_levels.library_name(isa, self._sources)).write_text(content)

    def find(self, isa: str = "auto") -> Library:
        found = find_library(self.folder / "cache", isa)
        assert found is not None
        return found

    def _load(self, path: str) -> None:
        if Path(path).read_text() == "of a newer system":
            raise OSError("version GLIBC_9.9 not found")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_the_second_build_finds_the_first(machine: Machine):
    first, second = (machine.find("portable") for _ in range(2))
    assert first == second
    assert first.path.read_text() == "built\n"
    assert len(compilations(machine.folder)) == 1


def test_other_sources_are_built_anew(machine: Machine):
    before = machine.find("portable")
    machine.edit("int two;")
    assert machine.find("portable") != before


@ON_X86
def test_an_instruction_set_has_a_library_of_its_own(machine: Machine):
    libraries = [machine.find(isa) for isa in ("native", "avx512", "avx512_vnni", "avx2", "portable")]
    assert len({library.path for library in libraries}) == 5


@ON_X86
def test_the_best_of_the_package_is_taken_without_a_run_of_the_compiler(machine: Machine):
    for isa in ("amx", "avx512", "portable"):
        machine.ship(isa)
    library = machine.find()
    assert (library.isa, library.shipped) == ("avx512", True)
    assert not (machine.folder / "runs").exists()
    assert machine.find("portable").shipped
    assert str(library).startswith("avx512, compiled at installation: ")


@ON_X86
def test_sources_that_were_edited_are_compiled_at_first_use(machine: Machine):
    machine.ship("avx512")
    machine.edit("int two;")
    library = machine.find()
    assert (library.isa, library.shipped) == ("avx512", False)
    assert "-mavx512bf16" in compilations(machine.folder)[0]
    assert str(library).startswith("avx512, compiled at first use: ")


@ON_X86
def test_a_package_from_a_lesser_machine_does_not_make_this_one_slower(machine: Machine):
    machine.ship("avx2")
    assert (machine.find().isa, machine.find().shipped) == ("avx512", False)
    machine.has(None)
    assert (machine.find().isa, machine.find().shipped) == ("avx2", True)


@ON_X86
def test_an_old_compiler_gives_what_it_knows(machine: Machine):
    machine.has(fake_compiler(machine.folder, unknown="-mavx512bf16"))
    assert machine.find().isa == "avx512_vnni"
    with pytest.raises(cpu_levels.BuildError, match="unrecognized option -mavx512bf16"):
        machine.find("avx512")


def test_a_library_that_cannot_be_loaded_here_is_not_taken(machine: Machine, caplog: pytest.LogCaptureFixture):
    machine.ship("portable", "of a newer system")
    with caplog.at_level(logging.INFO):
        assert not machine.find("portable").shipped
    assert "GLIBC_9.9" in caplog.text


def test_without_package_and_compiler_there_is_no_library(machine: Machine):
    machine.has(None)
    assert find_library(machine.folder / "cache") is None


def test_a_processor_that_says_nothing_is_left_to_the_compiler(machine: Machine, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cpu_build, "cpu_flags", frozenset)
    machine.ship("portable")
    assert machine.find().isa == "native"
    machine.has(None)
    assert machine.find().isa == "portable"


@ON_X86
@pytest.mark.parametrize(
    ("isa", "problem"),
    [
        ("amx", "MINISGL_CPU_ISA='amx': this processor lacks amx_tile, amx_int8, amx_bf16"),
        ("dotprod", "MINISGL_CPU_ISA='dotprod': x86_64 has amx, avx512, .* or native"),
    ],
)
def test_an_instruction_set_that_the_processor_lacks_is_refused(isa: str, problem: str, machine: Machine):
    with pytest.raises(ValueError, match=problem):
        machine.find(isa)
    assert not (machine.folder / "runs").exists()


def test_a_failure_quotes_the_compilers_last_lines_and_leaves_no_library(machine: Machine):
    machine.has(script(machine.folder / "c++", 'case "$*" in *-dM*) exit 0;; esac\necho "no floats here" >&2\nexit 1'))
    with pytest.raises(cpu_levels.BuildError, match="no floats here"):
        machine.find()
    assert not list((machine.folder / "cache").rglob("*.so"))


@pytest.mark.usefixtures("fresh")
def test_without_a_working_compiler_torch_does_it_and_the_log_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(ENV.KERNELS, "value", "auto")
    monkeypatch.setattr(cpu_build, "find_compiler", lambda: script(tmp_path / "c++", "echo out of order >&2; exit 1"))
    with caplog.at_level(logging.WARNING):
        out = kernel.silu_and_mul(torch.ones(1, 2))
    torch.testing.assert_close(out, torch.tensor([[0.7310586]]))
    assert "out of order" in caplog.text
    assert not kernel.has_cpp(out)


@pytest.mark.usefixtures("fresh")
def test_without_any_compiler_torch_does_it_too(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    monkeypatch.setattr(ENV.KERNELS, "value", "auto")
    monkeypatch.setattr(cpu_build, "find_compiler", lambda: None)
    with caplog.at_level(logging.INFO):
        assert not kernel.has_cpp(torch.ones(1))
    assert "there is no C++ compiler" in caplog.text


@pytest.mark.usefixtures("fresh")
def test_torch_can_be_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ENV.KERNELS, "value", "torch")
    assert not kernel.has_cpp(torch.ones(1))
    assert not list(tmp_path.rglob("*"))


def test_the_library_wants_no_openmp_runtime():
    """A second one beside torch's would be one more pool of threads that fight for the cores."""
    library = find_library(ENV.CACHE_DIR.value)
    if library is None:
        pytest.skip("no C++ compiler")
    content = library.path.read_bytes()  # with the names of all that it is linked to
    assert b"libc" in content
    assert not re.search(rb"lib(g|i)?omp", content)
