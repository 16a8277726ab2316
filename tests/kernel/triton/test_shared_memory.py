"""The kernels of attention and of experts fit other GPUs than the one that they were tuned on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from minisgl.attention.triton_backend import HEAD_DIMS, MAX_GROUP

SUPPORT = Path(__file__).parents[2] / "support"
# Bytes that a program may have, by compute capability. Source: CUDA C++ Programming Guide, "Compute Capabilities".
MOST = {80: 163 << 10, 89: 99 << 10, 90: 227 << 10, 120: 99 << 10}


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("head_dim", [HEAD_DIMS[0], 128, HEAD_DIMS[-1]])
@pytest.mark.parametrize("capability", MOST)
def test_programs_fit_the_shared_memory_of_every_gpu(capability: int, head_dim: int, dtype: str) -> None:
    has_room = MOST[capability] > 150 << 10
    assert 0 < most_bytes("compiled_attention.py", capability, head_dim, MAX_GROUP, dtype, has_room) <= MOST[capability]


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("capability", MOST)
def test_programs_of_experts_fit_the_shared_memory_of_every_gpu(capability: int, dtype: str) -> None:
    assert 0 < most_bytes("compiled_experts.py", capability, dtype) <= MOST[capability]


def most_bytes(script: str, *arguments: object) -> int:
    """Of a program among those that the script compiles."""
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, SUPPORT / script, *map(str, arguments)]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)
