"""Builds csrc/ with the machine's own C++ compiler, once for every version of sources, compiler and instruction set."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from filelock import FileLock

from minisgl.utils.hardware import cpu_flags

SOURCES = Path(__file__).parent / "csrc"
LIBRARY = "libminisgl_cpu.so"
FLAGS = ("-std=c++17", "-O3", "-ffp-contract=fast", "-fPIC", "-fvisibility=hidden", "-pthread", "-shared")
LAST_LINES = 8
IS_X86 = platform.machine() in ("x86_64", "AMD64")

_AVX2 = ("avx2", "fma", "f16c", "bmi1", "bmi2", "movbe")
_AVX512 = ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512_vnni", "avx512_bf16")
# By name: the compiler's flags, and what the processor must have for them, as Linux calls it. avx512 is what a Zen 4
# has: all but matrix units (AMX). Other machines than x86 have native and portable.
INSTRUCTION_SETS = {
    "native": (("-march=native",), ()),
    "avx512": (("-march=skylake-avx512", "-mavx512vnni", "-mavx512bf16"), (*_AVX2, *_AVX512)),
    "avx2": (("-march=haswell",), _AVX2),
    "portable": (("-march=x86-64",), ()),
}


class BuildError(Exception):
    """The compiler failed; the message holds its last lines."""


def build(compiler: str, cache_dir: Path, isa: str = "native") -> Path:
    """Path of the shared library below `cache_dir`, built now unless it is there already (10 to 20 seconds).

    isa: a key of INSTRUCTION_SETS. Processes that ask at the same time build it once. BuildError if the compiler
    cannot; ValueError if the processor could not run it.
    """
    flags = (*FLAGS, *_flags_of(isa))
    folder = cache_dir / "kernels" / _fingerprint(compiler, flags)
    library = folder / LIBRARY
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "lock"):
            if not library.exists():
                _compile(compiler, flags, library)
    return library


def missing_for(isa: str) -> tuple[str, ...]:
    """What this processor lacks for an instruction set."""
    if not IS_X86:
        return () if isa in ("native", "portable") else ("x86",)
    return tuple(name for name in INSTRUCTION_SETS[isa][1] if name not in cpu_flags())


def _flags_of(isa: str) -> tuple[str, ...]:
    if missing := missing_for(isa):
        raise ValueError(f"MINISGL_CPU_ISA={isa!r}: this processor lacks {', '.join(missing)}")
    if not IS_X86:  # compilers for Arm have another name for it, and none for what every one has
        return ("-mcpu=native",) if isa == "native" else ()
    return INSTRUCTION_SETS[isa][0]


def _fingerprint(compiler: str, flags: Sequence[str]) -> str:
    """Of everything that the library depends on. The predefined macros name the compiler's version, and the processor's
    instruction sets as the compiler sees them."""
    macros = _run([compiler, *flags, "-dM", "-E", "-x", "c++", os.devnull])
    digest = hashlib.sha256(repr((compiler, flags, macros)).encode())
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode() + source.read_bytes())
    return digest.hexdigest()[:16]


def _compile(compiler: str, flags: Sequence[str], library: Path) -> None:
    """Write `library` in one step, so that nobody ever loads half of it."""
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        built = Path(scratch) / LIBRARY
        _run([compiler, *flags, str(SOURCES / "cpu.cpp"), "-o", str(built)])
        built.replace(library)


def _run(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise BuildError(f"{command[0]}: {error}") from None
    if done.returncode != 0:
        raise BuildError("\n".join([" ".join(command), *done.stderr.splitlines()[-LAST_LINES:]]))
    return done.stdout
