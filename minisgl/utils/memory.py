"""Memory that ran out."""

from __future__ import annotations

import errno

import torch


def is_out_of_memory(error: Exception) -> bool:
    """On a CPU torch has no exception of its own for it, and mapping memory fails as opening a file does."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return "can't allocate memory" in str(error) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
