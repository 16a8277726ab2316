"""Memory that goes back to the system as soon as it is dropped."""

from __future__ import annotations

import math
import mmap

import torch

_LEAST = 1 << 17  # bytes; what is less can be left to malloc


def empty(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """As `torch.empty` on a CPU, in pages of its own if it is large.

    malloc maps large blocks, too, but not once the process has freed one as large: what is freed between others then
    stays resident.
    """
    num_bytes = math.prod(shape) * dtype.itemsize
    if num_bytes < _LEAST or not hasattr(mmap, "MAP_ANONYMOUS"):
        return torch.empty(shape, dtype=dtype)
    pages = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(pages, dtype=dtype).view(shape)
