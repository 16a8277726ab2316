"""The instruction sets that csrc/ is compiled for, and the compiling.

Standard library only, and no import of this package: hatch_build.py loads this file before anything is installed.
"""

from __future__ import annotations

import hashlib
import platform
import subprocess
import tempfile
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import NamedTuple

SOURCES = Path(__file__).parent / "csrc"
SHIPPED = Path(__file__).parent / "compiled"  # what the installation compiled
LAST_LINES = 8
_FLAGS = ("-std=c++17", "-O3", "-ffp-contract=fast", "-fPIC", "-fvisibility=hidden", "-pthread", "-shared")


class BuildError(Exception):
    """The compiler failed; the message holds its last lines."""


class Level(NamedTuple):
    """flags: of the compiler. needs: what the processor must have for them, as Linux calls it."""

    flags: tuple[str, ...]
    needs: tuple[str, ...]


_AVX2 = Level(("-march=haswell",), ("avx2", "fma", "f16c", "bmi1", "bmi2", "movbe", "abm"))
_AVX512_VNNI = Level(
    ("-march=skylake-avx512", "-mavx512vnni"),
    (*_AVX2.needs, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512_vnni"),
)
_AVX512 = Level((*_AVX512_VNNI.flags, "-mavx512bf16"), (*_AVX512_VNNI.needs, "avx512_bf16"))
_AMX = Level(
    (*_AVX512.flags, "-mamx-tile", "-mamx-int8", "-mamx-bf16"), (*_AVX512.needs, "amx_tile", "amx_int8", "amx_bf16")
)
# What multiplies integers in csrc/ without VNNI is slower by AVX-512 than by AVX2, so there is none of that.
_X86 = {
    "amx": _AMX,  # Sapphire Rapids
    "avx512": _AVX512,  # Zen 4, Cooper Lake
    "avx512_vnni": _AVX512_VNNI,  # Cascade Lake, Ice Lake
    "avx2_vnni": Level((*_AVX2.flags, "-mavxvnni"), (*_AVX2.needs, "avx_vnni")),  # Alder Lake
    "avx2": _AVX2,
    "portable": Level(("-march=x86-64",), ()),
}
_ARM = {
    "dotprod": Level(("-march=armv8.2-a+dotprod",), ("asimddp", "atomics", "asimdrdm", "crc32")),  # Neoverse N1
    "portable": Level(("-march=armv8-a",), ()),
}
# By the machine's name and the level's, best first.
LEVELS: Mapping[str, Mapping[str, Level]] = {"x86_64": _X86, "AMD64": _X86, "aarch64": _ARM, "arm64": _ARM}
BFLOAT16_PRODUCTS = "avx512_bf16"  # which some processors compute at half the rate of float32
NATIVE = "native"  # what the compiler makes of the very processor that it runs on
MACHINE = platform.machine()


def levels(machine: str = MACHINE) -> Mapping[str, Level]:
    """Those of an architecture, best first."""
    return LEVELS.get(machine, {"portable": Level((), ())})


def runnable(cpu_flags: Set[str], machine: str = MACHINE) -> tuple[str, ...]:
    """Names of the levels that a processor can run, best first."""
    return tuple(name for name, level in levels(machine).items() if cpu_flags >= set(level.needs))


def rival(name: str, machine: str = MACHINE) -> str | None:
    """The level that may be faster than a better one: the next that multiplies bfloat16 in float32, if that one does
    not."""
    below = iter(levels(machine).items())
    has_products = any(BFLOAT16_PRODUCTS in level.needs for each, level in below if each == name)
    return next((each for each, level in below if has_products and BFLOAT16_PRODUCTS not in level.needs), None)


def compiler_flags(name: str, machine: str = MACHINE) -> tuple[str, ...]:
    """All that the compiler is told for a level, or for NATIVE."""
    if name == NATIVE:  # compilers for others than x86 have another name for it
        return (*_FLAGS, "-march=native" if levels(machine) is _X86 else "-mcpu=native")
    return (*_FLAGS, *levels(machine)[name].flags)


def source_digest(sources: Path = SOURCES) -> bytes:
    digest = hashlib.sha256()
    for source in sorted(sources.iterdir()):
        if source.suffix in (".h", ".cpp"):
            digest.update(source.name.encode() + source.read_bytes())
    return digest.digest()


def library_name(name: str, sources: Path = SOURCES) -> str:
    """File name of the library that the installation compiles for a level. Other sources or flags have another one."""
    fingerprint = hashlib.sha256(repr(compiler_flags(name)).encode() + source_digest(sources)).hexdigest()[:16]
    return f"libminisgl_cpu-{name}-{fingerprint}.so"


def compile_library(compiler: str, flags: Sequence[str], library: Path, sources: Path = SOURCES) -> None:
    """Write `library` in one step, so that nobody ever loads half of it. BuildError if the compiler cannot."""
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        built = Path(scratch) / library.name
        run_compiler([compiler, *flags, str(sources / "cpu.cpp"), "-o", str(built)])
        built.replace(library)


def run_compiler(command: Sequence[str]) -> str:
    """What it prints. BuildError if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise BuildError(f"{command[0]}: {error}") from None
    if done.returncode != 0:
        raise BuildError("\n".join([" ".join(command), *done.stderr.splitlines()[-LAST_LINES:]]))
    return done.stdout
