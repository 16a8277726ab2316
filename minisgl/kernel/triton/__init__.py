"""The operations of torch_ops as Triton kernels, for CUDA tensors: the same names, arguments and results.

`can_take` may be asked anywhere; the modules beside it import Triton, which torch brings along where it knows CUDA.
"""

from __future__ import annotations

import importlib.util
from functools import cache

import torch

from minisgl.env import ENV

DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def can_take(x: torch.Tensor) -> bool:
    """Whether these kernels can work on tensors like `x`."""
    return x.is_cuda and x.dtype in DTYPES and in_use()


@cache
def in_use() -> bool:
    """Whether Triton is installed, and MINISGL_KERNELS allows it."""
    return ENV.KERNELS.value != "torch" and importlib.util.find_spec("triton") is not None
