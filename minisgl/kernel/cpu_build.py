"""The library of csrc/ for this processor: what the installation compiled, or built here, once for every version of
sources, compiler and instruction set."""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock

from minisgl.kernel import cpu_levels
from minisgl.kernel.cpu_levels import NATIVE, BuildError, compile_library, compiler_flags, levels, run_compiler
from minisgl.utils.logging import get_logger
from minisgl.utils.processor import cpu_flags, find_compiler

logger = get_logger(__name__)

AUTO = "auto"
LIBRARY = "libminisgl_cpu.so"


class Library(NamedTuple):
    """isa: a key of `levels`, or NATIVE. shipped: compiled by the installation."""

    path: Path
    isa: str
    shipped: bool

    def __str__(self) -> str:
        origin = "compiled at installation" if self.shipped else "compiled at first use"
        return f"{self.isa}, {origin}: {self.path}"


def find_library(cache_dir: Path, isa: str = AUTO) -> Library | None:
    """The library for an instruction set, built below `cache_dir` if the installation left none (10 to 20 seconds).

    isa: a key of `levels`, NATIVE, or AUTO: the best that this processor has, or the next one where that cannot be had.
    None if there is neither a library nor a compiler. BuildError if the compiler cannot; ValueError if the processor
    could not run it.
    """
    compiler = find_compiler()
    failure: BuildError | None = None
    for name in _candidates(isa):
        if library := shipped(name):
            return library
        if compiler is None:
            continue
        try:
            return Library(build(compiler, cache_dir, name), name, shipped=False)
        except BuildError as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return None


def missing_for(isa: str) -> tuple[str, ...]:
    """What this processor lacks for an instruction set, a key of `levels`."""
    return tuple(name for name in levels()[isa].needs if name not in cpu_flags())


def build(compiler: str, cache_dir: Path, isa: str) -> Path:
    """Path of the shared library below `cache_dir`, built now unless it is there already.

    isa: a key of `levels`, or NATIVE. Processes that ask at the same time build it once. BuildError if the compiler
    cannot.
    """
    flags = compiler_flags(isa)
    folder = cache_dir / "kernels" / _fingerprint(compiler, flags)
    library = folder / LIBRARY
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "lock"):
            if not library.exists():
                logger.warning("compiling the C++ kernels for %s, once: 10 to 20 seconds", isa)  # somebody waits
                compile_library(compiler, flags, library, cpu_levels.SOURCES)
    return library


def _candidates(isa: str) -> tuple[str, ...]:
    """What may be taken, best first. Where a processor does not say what it has, the compiler may know."""
    if isa == AUTO:
        return (*(() if cpu_flags() else (NATIVE,)), *cpu_levels.runnable(cpu_flags()))
    if isa != NATIVE:
        if isa not in levels():
            raise ValueError(f"MINISGL_CPU_ISA={isa!r}: {cpu_levels.MACHINE} has {', '.join(levels())} or {NATIVE}")
        if missing := missing_for(isa):
            raise ValueError(f"MINISGL_CPU_ISA={isa!r}: this processor lacks {', '.join(missing)}")
    return (isa,)


def shipped(isa: str) -> Library | None:
    """The one that was compiled from these very sources at installation, if this machine can load it."""
    if isa == NATIVE:
        return None
    path = cpu_levels.SHIPPED / cpu_levels.library_name(isa, cpu_levels.SOURCES)
    if not path.exists():
        return None
    try:
        ctypes.CDLL(str(path))
    except OSError as error:  # compiled where the C library is newer
        logger.info("the C++ kernels that were compiled at installation cannot be loaded: %s", error)
        return None
    return Library(path, isa, shipped=True)


def _fingerprint(compiler: str, flags: Sequence[str]) -> str:
    """Of everything that the library depends on. The predefined macros name the compiler's version, and the processor's
    instruction sets as the compiler sees them."""
    macros = run_compiler([compiler, *flags, "-dM", "-E", "-x", "c++", os.devnull])
    digest = hashlib.sha256(repr((compiler, flags, macros)).encode())
    digest.update(cpu_levels.source_digest(cpu_levels.SOURCES))
    return digest.hexdigest()[:16]
