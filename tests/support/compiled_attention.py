"""How much shared memory the attention kernels take on other GPUs: compiled for these, and not run.

    python compiled_attention.py CAPABILITY HEAD_DIM GROUP DTYPE ROOM     # prints the most bytes of a program

A process of its own, since the tests have Triton's interpreter.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from minisgl.attention.decode_plan import plan_extends, plan_own
from minisgl.kernel import attention_work
from minisgl.kernel.attention_work import Weighing
from minisgl.kernel.triton import decode, tiles

SHARED: list[int] = []


def compile_only(capability: int) -> None:
    """Have kernels compiled instead of launched, for a GPU that is not there."""
    target = GPUTarget("cuda", capability, 32)
    devices = {"get_current_device": lambda: 0, "get_current_stream": lambda device: 0}
    driver.set_active(SimpleNamespace(get_current_target=lambda: target, **devices))
    run = JITFunction.run

    def compiled(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        kernel = run(self, *args, grid=grid, warmup=True, **kwargs)
        SHARED.append(kernel.metadata.shared)
        return kernel

    JITFunction.run = compiled


def compile_attention(head_dim: int, group: int, dtype: torch.dtype) -> None:
    """One decode and one prompt, by the calls and the tilings that an engine takes: as in most models, and with all
    that others add."""
    q, cache = torch.zeros(1, group, head_dim, dtype=dtype), torch.zeros(16, 1, head_dim, dtype=dtype)
    paged = (cache, cache, torch.zeros(1, 1, dtype=torch.int32), 16)
    partials = attention_work.new_partials(1, 1, group, 1, head_dim, torch.device("cpu"))
    zero, one, out = np.array([0]), np.array([1]), torch.zeros(1, group * head_dim, dtype=dtype)
    own, extends = plan_own(zero, zero, one, 1, 16), plan_extends(zero, zero, one, 1, 1, 16)
    queries, items, columns = map(torch.from_numpy, extends[:3])
    plain, other = Weighing(1.0), Weighing(1.0, softcap=50.0, sinks=torch.zeros(group))
    for weighing, window in ((plain, 0), (other, 4096)):
        decode.paged_decode(q, *paged, *map(torch.from_numpy, own), out, partials, weighing)
        tiles.tile_attention(q, queries, *paged, items, columns, out, partials, weighing, causal=True, window=window)


if __name__ == "__main__":
    capability, head_dim, group = map(int, sys.argv[1:4])
    compile_only(capability)
    attention_work._room = lambda: int(sys.argv[5])
    compile_attention(head_dim, group, getattr(torch, sys.argv[4]))
    print(max(SHARED))
