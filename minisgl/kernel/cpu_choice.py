"""The C++ kernels that compute on this processor, and whether in bfloat16: by rates, measured once and kept in files.

Flags say what a processor has, not how fast it is: on some, products of bfloat16 take longer than the same in float32.
So the libraries that come into question each multiply a small layer in both dtypes. What was measured is never measured
again for the same processor, version and library, for another choice would give other tokens.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import math
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock

from minisgl import __version__
from minisgl.kernel.cpu_build import AUTO, Library, find_library, shipped
from minisgl.kernel.cpu_levels import BuildError, rival
from minisgl.utils.logging import get_logger
from minisgl.utils.processor import cpu_flags, read_cpuinfo

logger = get_logger(__name__)

ROUNDS = 7  # of which the best counts
LEVEL_MARGIN = 1.15  # by which a lesser level must be faster
DTYPE_MARGIN = 0.85  # of float32's rate that bfloat16 must have: it halves what a step reads, weights, keys and values


class Rates(NamedTuple):
    """Operations of one core in a linear layer as prompts have it, in 10^9 a second (a multiplication and an addition
    are two), by dtype."""

    float32: float
    bfloat16: float

    @property
    def bfloat16_pays(self) -> bool:
        """Whether models in 16 bits are computed in bfloat16."""
        return self.bfloat16 >= DTYPE_MARGIN * self.float32


class Choice(NamedTuple):
    """rates: by level, of those that came into question; None where they cannot be kept, and flags decide."""

    library: Library
    rates: dict[str, Rates] | None

    @property
    def bfloat16_pays(self) -> bool | None:
        """Whether models in 16 bits are computed in bfloat16; None: nobody has measured it."""
        return self.rates[self.library.isa].bfloat16_pays if self.rates else None

    def __str__(self) -> str:
        return f"{self.library} ({self.reason()})"

    def reason(self) -> str:
        """The rates in words, or that there are none."""
        if self.rates is None:
            return "by the processor's flags, as rates cannot be kept"
        return "; ".join(f"{isa}: {describe(rates)}" for isa, rates in self.rates.items())


def choose(cache_dir: Path, isa: str = AUTO) -> Choice | None:
    """The library to compute with: as `find_library` but, with AUTO, the faster of the best one and its rival.

    A package that has the best library is asked for the rival's, too; none is compiled beside it.
    """
    best = find_library(cache_dir, isa)
    if best is None:
        return None
    other = _rival_of(best, cache_dir) if isa == AUTO else None
    rates = find_rates([best] if other is None else [best, other], cache_dir)
    if other is None or rates is None:
        return Choice(best, rates)
    return Choice(other if rates[other.isa].bfloat16 > LEVEL_MARGIN * rates[best.isa].bfloat16 else best, rates)


def _rival_of(best: Library, cache_dir: Path) -> Library | None:
    name = rival(best.isa)
    if name is None:
        return None
    try:
        return shipped(name) if best.shipped else find_library(cache_dir, name)
    except BuildError as error:
        logger.info("C++ kernels for %s could not be built, and are not compared: %s", name, error)
        return None


def find_rates(libraries: Sequence[Library], cache_dir: Path) -> dict[str, Rates] | None:
    """Rates by level, from their files below `cache_dir`, or measured now (some 15 ms each) and written there.

    Processes that ask at the same time measure once. None where they cannot be kept, which the log says: nothing must
    be decided by what may be otherwise at the next start.
    """
    files = {library: _File(library, cache_dir) for library in libraries}
    found = {library: rates for library, file in files.items() if (rates := file.read())}
    if len(found) < len(files):
        folder = cache_dir / "kernels"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with FileLock(folder / "rates.lock"):
                found = {library: rates for library, file in files.items() if (rates := file.read(warn=True))}
                missing = [library for library in libraries if library not in found]
                for library, rates in measure(missing).items():
                    files[library].write(rates)
                    found[library] = rates
        except (OSError, NotImplementedError) as error:
            _say_not_kept(str(folder), str(error))
            return None
    return {library.isa: found[library] for library in libraries}


def measure(libraries: Sequence[Library]) -> dict[Library, Rates]:
    """The best of some rounds, in which all take turns. OSError for one that cannot be loaded."""
    measures = {library: _functions(library) for library in libraries}
    best = dict.fromkeys(libraries, Rates(0.0, 0.0))
    for _ in range(ROUNDS):
        for library, of_dtypes in measures.items():
            best[library] = Rates(*(max(old, take()) for old, take in zip(best[library], of_dtypes, strict=True)))
    for library, rates in best.items():
        logger.info("C++ kernels for %s: %s", library.isa, describe(rates))
    return best


def describe(rates: Rates) -> str:
    return f"{rates.bfloat16:.0f} GFLOP/s a core in bfloat16, {rates.float32:.0f} in float32"


def _functions(library: Library) -> list[ctypes._NamedFuncPointer]:
    loaded = ctypes.PyDLL(str(library.path))
    functions = [getattr(loaded, f"linear_rate_{dtype}") for dtype in Rates._fields]
    for function in functions:
        function.restype = ctypes.c_double
    return functions


@cache  # once a process
def _say_not_kept(folder: str, error: str) -> None:
    logger.warning(
        "rates of the C++ kernels cannot be kept in %s, so the processor's flags decide on kernels and dtype: %s",
        folder,
        error,
    )


class _File:
    """Where the rates of a library on this processor are kept. Whoever copies it to another machine is not believed."""

    def __init__(self, library: Library, cache_dir: Path) -> None:
        self._of = {
            "version": __version__,
            "processor": read_cpuinfo()[0],
            "flags": hashlib.sha256(" ".join(sorted(cpu_flags())).encode()).hexdigest()[:16],
            "library": "/".join(library.path.parts[-2:]),  # with the fingerprint of its sources
        }
        name = hashlib.sha256(json.dumps(self._of).encode()).hexdigest()[:16]
        self.path = cache_dir / "kernels" / f"rates-{library.isa}-{name}.json"

    def read(self, warn: bool = False) -> Rates | None:
        """None if there are none, or none that can be true."""
        try:
            found = json.loads(self.path.read_text())
            if {key: found[key] for key in self._of} != self._of:
                raise ValueError("it is of another processor, version or library")
            return Rates(*(_positive(found[name]) for name in Rates._fields))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            if warn:
                logger.warning("%s is not used, and the C++ kernels are measured anew: %r", self.path, error)
            return None

    def write(self, rates: Rates) -> None:
        with tempfile.TemporaryDirectory(dir=self.path.parent) as scratch:
            unfinished = Path(scratch) / self.path.name
            unfinished.write_text(json.dumps(self._of | rates._asdict(), indent=1) + "\n")
            unfinished.replace(self.path)


def _positive(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"{value!r} is no rate")
    return float(value)
