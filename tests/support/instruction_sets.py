"""Kernel tests for every instruction set that this processor has: `pytestmark = usefixtures("instruction_set")`.

Tests that take long have "best_instruction_set" instead, and the others nightly. What is packed for one is for its
kernels alone, so tests pack anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest

from minisgl.env import ENV
from minisgl.kernel import cpu_library
from minisgl.kernel.cpu_levels import runnable
from minisgl.utils.processor import cpu_flags

AVAILABLE = runnable(cpu_flags())
BETWEEN = frozenset({"avx512_vnni", "avx2_vnni"})  # made of pieces of others, and each takes as long to compile


def _params(nightly: Iterable[str]) -> list[object]:
    marks = {isa: [pytest.mark.nightly] for isa in nightly if isa != AVAILABLE[0]}
    return [pytest.param(isa, marks=marks.get(isa, [])) for isa in AVAILABLE]


@pytest.fixture(params=_params(nightly=BETWEEN), scope="module")
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    """MINISGL_CPU_ISA is each in turn, and the C++ kernels are those built for it."""
    with _kernels_for(str(request.param)) as isa:
        yield isa


@pytest.fixture(params=_params(nightly=AVAILABLE), scope="module")
def best_instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    """The same; all but the best are for the night."""
    with _kernels_for(str(request.param)) as isa:
        yield isa


@contextmanager
def _kernels_for(isa: str) -> Iterator[str]:
    before = ENV.CPU_ISA.value
    ENV.CPU_ISA.value = isa
    cpu_library.functions.cache_clear()
    yield isa
    ENV.CPU_ISA.value = before
    cpu_library.functions.cache_clear()
