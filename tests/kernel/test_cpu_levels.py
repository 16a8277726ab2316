"""Which instruction sets the C++ kernels are compiled for, and which one a processor takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.compilers import compilations, fake_compiler, script

from minisgl.env import _CPU_ISAS
from minisgl.kernel.cpu_levels import (
    LEVELS,
    NATIVE,
    BuildError,
    compile_library,
    compiler_flags,
    levels,
    library_name,
    runnable,
)

HASWELL = {"fpu", "avx", "avx2", "fma", "f16c", "bmi1", "bmi2", "movbe", "abm"}
SKYLAKE_X = HASWELL | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
ICE_LAKE = SKYLAKE_X | {"avx512_vnni", "avx512vbmi"}
ZEN_4 = ICE_LAKE | {"avx512_bf16"}
SAPPHIRE_RAPIDS = ZEN_4 | {"avx_vnni", "amx_tile", "amx_int8", "amx_bf16", "avx512_fp16"}
GRAVITON = {"fp", "asimd", "aes", "crc32", "atomics", "asimdhp", "asimdrdm", "asimddp"}


@pytest.mark.parametrize(
    ("machine", "flags", "best"),
    [
        ("x86_64", SAPPHIRE_RAPIDS, "amx"),
        ("x86_64", SAPPHIRE_RAPIDS - {"amx_tile"}, "avx512"),  # as some hypervisors show it
        ("x86_64", ZEN_4, "avx512"),
        ("x86_64", ICE_LAKE, "avx512_vnni"),
        ("x86_64", SKYLAKE_X, "avx2"),
        ("x86_64", HASWELL | {"avx_vnni"}, "avx2_vnni"),
        ("x86_64", HASWELL, "avx2"),
        ("x86_64", HASWELL - {"fma"}, "portable"),
        ("x86_64", set(), "portable"),
        ("AMD64", ZEN_4, "avx512"),
        ("aarch64", GRAVITON, "dotprod"),
        ("arm64", GRAVITON, "dotprod"),
        ("aarch64", GRAVITON - {"asimddp"}, "portable"),
        ("riscv64", {"rv64imafdc"}, "portable"),
    ],
)
def test_a_processor_takes_the_best_that_it_has(machine: str, flags: set[str], best: str):
    assert runnable(flags, machine)[0] == best
    assert runnable(flags, machine)[-1] == "portable"


def test_every_level_has_a_name_in_the_environment_and_the_environment_no_other():
    named = {name for of_machine in LEVELS.values() for name in of_machine}
    assert set(_CPU_ISAS) == named | {"auto", NATIVE}


def test_each_architecture_is_asked_for_its_own_processor_in_its_own_words():
    assert compiler_flags(NATIVE, "x86_64")[-1] == "-march=native"
    assert compiler_flags(NATIVE, "aarch64")[-1] == "-mcpu=native"


def test_other_sources_and_other_levels_have_other_file_names(tmp_path: Path):
    (tmp_path / "cpu.cpp").write_text("int one;")
    first = library_name("portable", tmp_path)
    assert library_name("portable", tmp_path) == first
    assert {library_name(name, tmp_path).split("-")[1] for name in levels()} == set(levels())
    (tmp_path / "cpu.cpp.orig").write_text("an editor's copy")
    assert library_name("portable", tmp_path) == first
    (tmp_path / "cpu.cpp").write_text("int two;")
    assert library_name("portable", tmp_path) != first
    (tmp_path / "cpu.cpp").write_text("int one;")
    (tmp_path / "more.h").write_text("")
    assert library_name("portable", tmp_path) != first


def test_a_library_comes_whole_or_not_at_all(tmp_path: Path):
    library = tmp_path / "out" / "lib.so"
    library.parent.mkdir()
    compile_library(fake_compiler(tmp_path), ["-flag"], library)
    assert [path.name for path in library.parent.iterdir()] == ["lib.so"]
    assert compilations(tmp_path)[0].startswith("-flag ")
    library.unlink()
    failing = script(tmp_path / "failing", 'touch "$3"; echo "no such thing as a float" >&2; exit 1')
    with pytest.raises(BuildError, match="no such thing as a float"):
        compile_library(failing, [], library)
    assert not list(library.parent.iterdir())
