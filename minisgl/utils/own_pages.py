"""Memory that goes back to the system as soon as it is dropped."""

from __future__ import annotations

import math
import mmap
from collections import defaultdict

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


class Scratch:
    """Memory that is wanted for a while, again and again: to touch new pages takes as long as to copy to old ones."""

    def __init__(self) -> None:
        self._free: defaultdict[tuple[torch.Size, torch.dtype], list[torch.Tensor]] = defaultdict(list)

    def take(self, like: torch.Tensor) -> torch.Tensor:
        """Of the shape and dtype of `like`, with anything in it."""
        free = self._free[like.shape, like.dtype]
        return free.pop() if free else empty(like.shape, like.dtype)

    def give_back(self, tensor: torch.Tensor) -> None:
        """What `take` gave, and nobody uses any more."""
        self._free[tensor.shape, tensor.dtype].append(tensor)

    def clear(self) -> None:
        """What was given back goes to the system."""
        self._free.clear()
