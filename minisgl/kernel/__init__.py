"""Every operation of the models that is no matmul, by the fastest implementation that the tensors at hand allow.

`torch_ops` says what each one does; `cpu_ops` and `cpu_step` do the same in C++ and `triton` on a GPU
(MINISGL_KERNELS=torch turns them off). The choice goes by the first tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar, cast

import torch

from minisgl.kernel import cpu_ops, cpu_step, torch_attention, torch_ops, triton

P = ParamSpec("P")
R = TypeVar("R")
Operation = Callable[Concatenate[torch.Tensor, P], R]


def _fastest(reference: Operation[P, R], module: str | None = None) -> Operation[P, R]:
    """module: the one of `triton` that has the operation, if any does."""
    name = reference.__name__
    in_cpp: Operation[P, R] = getattr(cpu_ops, name, getattr(cpu_step, name, reference))

    @wraps(reference)
    def operation(x: torch.Tensor, *args: P.args, **kwargs: P.kwargs) -> R:
        if module is not None and triton.can_take(x):
            return cast(R, triton.operation(module, name)(x, *args, **kwargs))
        return (in_cpp if cpu_ops.has(name, x) else reference)(x, *args, **kwargs)

    return cast(Operation[P, R], operation)


has_cpp = cpu_ops.can_take
begin_step = _fastest(torch_ops.begin_step, "step")
rms_norm = _fastest(torch_ops.rms_norm, "norm")
add_rms_norm = _fastest(torch_ops.add_rms_norm, "norm")
silu_and_mul = _fastest(torch_ops.silu_and_mul, "activation")
gelu_tanh_and_mul = _fastest(torch_ops.gelu_tanh_and_mul, "activation")
soft_cap = _fastest(torch_ops.soft_cap, "activation")
rotary_turns = _fastest(torch_ops.rotary_turns, "rotary")
apply_rotary = _fastest(torch_ops.apply_rotary, "rotary")
store_cache = _fastest(torch_ops.store_cache, "rotary")
look_up = _fastest(torch_ops.look_up)
best_tokens = _fastest(torch_ops.best_tokens)
mark_broken = _fastest(torch_ops.mark_broken, "broken")
fill_kv_indices = _fastest(torch_ops.fill_kv_indices, "kv_indices")
paged_decode = _fastest(torch_attention.paged_decode, "decode")
tile_attention = _fastest(torch_attention.tile_attention, "tiles")
merge_partials = _fastest(torch_attention.merge_partials, "merge")

BROKEN = torch_ops.BROKEN
NUM_SETTINGS = torch_ops.NUM_SETTINGS

__all__ = [
    "BROKEN",
    "NUM_SETTINGS",
    "add_rms_norm",
    "apply_rotary",
    "begin_step",
    "best_tokens",
    "fill_kv_indices",
    "gelu_tanh_and_mul",
    "has_cpp",
    "look_up",
    "mark_broken",
    "merge_partials",
    "paged_decode",
    "rms_norm",
    "rotary_turns",
    "silu_and_mul",
    "soft_cap",
    "store_cache",
    "tile_attention",
]
