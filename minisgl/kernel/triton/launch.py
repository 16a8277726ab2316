"""How kernels are launched: one begins while the one before it still runs, where the hardware can (compute 9.0 and up).

A kernel launched so takes PDL, a constexpr. It asks the next one in early (`begin_next`), and waits (`wait_for_last`)
before it reads what an earlier kernel wrote and before it writes anything at all: until then only weights may be read,
and what was written before the layers: the embedding, which starts when all before it has ended and lets nothing start
before it has, divides a step. So the plan, the page table, and keys and values of earlier steps may be read too.
Every such kernel must wait: the next one takes it that all earlier ones are done once this one is.
"""

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@cache
def programmatic() -> bool:
    """Whether kernels may begin before the last one has ended: the value for PDL and launch_pdl."""
    return torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0)


@triton.jit
def begin_next(PDL: tl.constexpr):
    if PDL:
        gdc_launch_dependents()


@triton.jit
def wait_for_last(PDL: tl.constexpr):
    if PDL:
        gdc_wait()
