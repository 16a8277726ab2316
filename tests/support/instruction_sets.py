"""Kernel tests once for every instruction set that this processor has: `pytestmark = usefixtures("instruction_set")`.

What is packed for one is for its kernels alone, so tests pack anew.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from minisgl.env import ENV
from minisgl.kernel import cpu_library
from minisgl.kernel.cpu_levels import runnable
from minisgl.utils.processor import cpu_flags

AVAILABLE = runnable(cpu_flags())
BETWEEN = frozenset({"avx512_vnni", "avx2_vnni"})  # made of pieces of others, and each takes as long to compile


def _param(isa: str) -> object:
    is_rare = isa in BETWEEN and isa != AVAILABLE[0]
    return pytest.param(isa, marks=[pytest.mark.nightly] if is_rare else [])


@pytest.fixture(params=[_param(isa) for isa in AVAILABLE], scope="module")
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    """MINISGL_CPU_ISA is each in turn, and the C++ kernels are those built for it."""
    before, isa = ENV.CPU_ISA.value, str(request.param)
    ENV.CPU_ISA.value = isa
    cpu_library.functions.cache_clear()
    yield isa
    ENV.CPU_ISA.value = before
    cpu_library.functions.cache_clear()
