"""This machine's processor, and the compiler for it.

Standard library only, and no import of this package: hatch_build.py loads this file before anything is installed.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from functools import cache
from pathlib import Path

_COMPILERS = ("c++", "g++", "clang++")


@cache
def cpu_is_intel() -> bool:
    """Whether MKL's float32 kernels run at their best here."""
    return "Intel" in read_cpuinfo()[0]


@cache
def cpu_flags() -> frozenset[str]:
    """Every instruction set of this processor, by the names of Linux; none where it does not say."""
    return frozenset(read_cpuinfo()[1])


def read_cpuinfo(path: Path = Path("/proc/cpuinfo")) -> tuple[str, tuple[str, ...]]:
    """Name and features; without that file (not Linux) the platform's name and nothing."""
    if not path.is_file():
        return platform.processor() or platform.machine(), ()
    fields = dict(split_field(line) for line in path.read_text().splitlines() if ":" in line)
    flags = fields.get("flags") or fields.get("Features") or ""
    return fields.get("model name", platform.machine()), tuple(flags.split())


def split_field(line: str) -> tuple[str, str]:
    """Name and value of a line "name: value" below /proc."""
    name, _, value = line.partition(":")
    return name.strip(), value.strip()


def find_compiler() -> str | None:
    """Path of a C++ compiler: the one that CXX names, or the first usual one."""
    names = [os.environ["CXX"]] if os.environ.get("CXX") else _COMPILERS
    return next((path for name in names if (path := shutil.which(name))), None)


def compiler_version(path: str) -> str:
    """The first line of what the compiler says about itself."""
    answer = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return (answer.stdout or answer.stderr).partition("\n")[0]
