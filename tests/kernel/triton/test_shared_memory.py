"""The kernels of attention and of experts fit other GPUs than the one that they were tuned on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from minisgl.attention.triton_backend import HEAD_DIMS, MAX_GROUP
from minisgl.kernel import attention_work

SUPPORT = Path(__file__).parents[2] / "support"
# KiB that a program may have, by compute capability. Source: CUDA C++ Programming Guide, "Compute Capabilities".
MOST = {80: 163, 89: 99, 90: 227, 100: 227, 120: 99}


@pytest.mark.parametrize(("capability", "most"), MOST.items())
def test_room_is_what_a_multiprocessor_has_but_one_kib(
    capability: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = SimpleNamespace(shared_memory_per_multiprocessor=(most + 1) << 10)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda: gpu)
    assert attention_work._room.__wrapped__() == most
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert attention_work._room.__wrapped__() == 0


@pytest.mark.parametrize(
    ("head_dim", "dtype", "with_room"),
    [(128, torch.bfloat16, {80, 90, 100}), (256, torch.bfloat16, {90, 100}), (256, torch.float32, {80, 90, 100})],
)
def test_gpus_with_room_take_larger_tiles(
    head_dim: int, dtype: torch.dtype, with_room: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = {}
    for capability, most in MOST.items():
        monkeypatch.setattr(attention_work, "_room", lambda most=most: most)
        configs[capability] = attention_work.tile_config(dtype, head_dim)
    larger = {capability for capability, config in configs.items() if config[1:] > configs[89][1:]}
    assert larger == with_room


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("head_dim", [HEAD_DIMS[0], 128, HEAD_DIMS[-1]])
@pytest.mark.parametrize("capability", MOST)
def test_programs_fit_the_shared_memory_of_every_gpu(capability: int, head_dim: int, dtype: str) -> None:
    most = MOST[capability]
    assert 0 < most_bytes("compiled_attention.py", capability, head_dim, MAX_GROUP, dtype, most) <= most << 10


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("capability", MOST)
def test_programs_of_experts_fit_the_shared_memory_of_every_gpu(capability: int, dtype: str) -> None:
    assert 0 < most_bytes("compiled_experts.py", capability, dtype) <= MOST[capability] << 10


def most_bytes(script: str, *arguments: object) -> int:
    """Of a program among those that the script compiles."""
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, SUPPORT / script, *map(str, arguments)]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)
