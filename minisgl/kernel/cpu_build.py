"""Builds csrc/ with the machine's own C++ compiler, once for every version of sources, compiler and processor."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from filelock import FileLock

SOURCES = Path(__file__).parent / "csrc"
LIBRARY = "libminisgl_cpu.so"
FLAGS = ("-std=c++17", "-O3", "-ffp-contract=fast", "-fPIC", "-shared")
LAST_LINES = 8


class BuildError(Exception):
    """The compiler failed; the message holds its last lines."""


def build(compiler: str, cache_dir: Path) -> Path:
    """Path of the shared library below `cache_dir`, built now unless it is there already (some 3 seconds).

    Processes that ask at the same time build it once. BuildError if the compiler cannot.
    """
    flags = (*FLAGS, _native_flag(), "-fopenmp")
    folder = cache_dir / "kernels" / _fingerprint(compiler, flags)
    library = folder / LIBRARY
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "lock"):
            if not library.exists():
                _compile(compiler, flags, library)
    return library


def _native_flag() -> str:
    """All that this processor can do; Arm compilers have another name for it."""
    return "-march=native" if platform.machine() in ("x86_64", "AMD64") else "-mcpu=native"


def _fingerprint(compiler: str, flags: Sequence[str]) -> str:
    """Of everything that the library depends on. The predefined macros name the compiler's version, and the processor's
    instruction sets as the compiler sees them."""
    macros = _run([compiler, *flags, "-dM", "-E", "-x", "c++", os.devnull])
    digest = hashlib.sha256(repr((compiler, flags, _openmp_library(), macros)).encode())
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode() + source.read_bytes())
    return digest.hexdigest()[:16]


def _compile(compiler: str, flags: Sequence[str], library: Path) -> None:
    """Write `library` in one step, so that nobody ever loads half of it."""
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        built = Path(scratch) / LIBRARY
        _run([compiler, *flags, str(SOURCES / "cpu.cpp"), *_openmp_library(), "-o", str(built)])
        built.replace(library)


def _openmp_library() -> list[str]:
    """torch's own OpenMP runtime, if it brings one: two of them would be two pools of threads, which fight."""
    return sorted(str(path) for path in (Path(torch.__file__).parent / "lib").glob("libgomp*.so*"))[:1]


def _run(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise BuildError(f"{command[0]}: {error}") from None
    if done.returncode != 0:
        raise BuildError("\n".join([" ".join(command), *done.stderr.splitlines()[-LAST_LINES:]]))
    return done.stdout
