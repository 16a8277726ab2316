"""Every operation of the models that is no matmul, by the fastest implementation that the tensors at hand allow.

`torch_ops` says what each one does; `cpu_ops` does the same in C++ (MINISGL_KERNELS=torch turns it off). The choice
goes by the first tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar, cast

import torch

from minisgl.kernel import cpu_ops, torch_ops

P = ParamSpec("P")
R = TypeVar("R")
Operation = Callable[Concatenate[torch.Tensor, P], R]


def _fastest(reference: Operation[P, R]) -> Operation[P, R]:
    in_cpp: Operation[P, R] = getattr(cpu_ops, reference.__name__)

    @wraps(reference)
    def operation(x: torch.Tensor, *args: P.args, **kwargs: P.kwargs) -> R:
        return (in_cpp if cpu_ops.can_take(x) else reference)(x, *args, **kwargs)

    return cast(Operation[P, R], operation)


has_cpp = cpu_ops.can_take
rms_norm = _fastest(torch_ops.rms_norm)
add_rms_norm = _fastest(torch_ops.add_rms_norm)
silu_and_mul = _fastest(torch_ops.silu_and_mul)
apply_rotary = _fastest(torch_ops.apply_rotary)
rotate_and_store = _fastest(torch_ops.rotate_and_store)
store_cache = _fastest(torch_ops.store_cache)
decode_attention = _fastest(torch_ops.decode_attention)

__all__ = [
    "add_rms_norm",
    "apply_rotary",
    "decode_attention",
    "has_cpp",
    "rms_norm",
    "rotate_and_store",
    "silu_and_mul",
    "store_cache",
]
