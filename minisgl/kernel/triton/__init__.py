"""Operations as Triton kernels, for CUDA tensors: the names, arguments and results of torch_ops and torch_attention,
and beside these the linear layers and the sampling of a decode step.

The modules beside this one import Triton, which torch brings along where it knows CUDA: `operation` does so in time.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from minisgl.env import ENV

DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.int32)  # of the first tensor


def can_take(x: torch.Tensor) -> bool:
    """Whether these kernels can work on tensors like `x`."""
    return x.is_cuda and x.dtype in DTYPES and in_use()


@cache
def in_use() -> bool:
    """Whether Triton is installed, and MINISGL_KERNELS allows it."""
    return ENV.KERNELS.value != "torch" and importlib.util.find_spec("triton") is not None


@cache
def operation(module: str, name: str) -> Callable[..., Any]:
    """The operation `name` of a module beside this one. Only where these kernels are `in_use`."""
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)  # type: ignore[no-any-return]
