"""The attention kernels fit other GPUs than the one that they were tuned on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from minisgl.attention.triton_backend import HEAD_DIMS, MAX_GROUP

SCRIPT = Path(__file__).parents[2] / "support" / "compiled_attention.py"
# Bytes that a program may have, by compute capability. Source: CUDA C++ Programming Guide, "Compute Capabilities".
MOST = {80: 163 << 10, 89: 99 << 10, 90: 227 << 10, 120: 99 << 10}


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("head_dim", [HEAD_DIMS[0], 128, HEAD_DIMS[-1]])
@pytest.mark.parametrize("capability", MOST)
def test_programs_fit_the_shared_memory_of_every_gpu(capability: int, head_dim: int, dtype: str) -> None:
    has_room = MOST[capability] > 150 << 10
    arguments = map(str, (capability, head_dim, MAX_GROUP, dtype, has_room))
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, SCRIPT, *arguments], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert 0 < int(done.stdout) <= MOST[capability]
