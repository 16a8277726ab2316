"""Rows of a tensor by number: a slice (a view, no copy) where the numbers are one ascending run, else a list."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

IntArray = npt.NDArray[np.signedinteger]
Index = slice | torch.Tensor


def make_index(rows: IntArray, device: torch.device) -> Index:
    """`rows` [N] as a slice if they are consecutive, else as an int64 tensor on `device`."""
    first, num_rows = int(rows[0]), len(rows)
    if int(rows[-1]) - first == num_rows - 1 and bool((np.diff(rows) == 1).all()):
        return slice(first, first + num_rows)
    return torch.from_numpy(rows).to(device)


def index_len(index: Index) -> int:
    """How many rows it names."""
    return index.stop - index.start if isinstance(index, slice) else len(index)


def take(x: torch.Tensor, index: Index, scratch: torch.Tensor | None = None) -> torch.Tensor:
    """Those rows of x [R, ...]: a view for a slice, else a copy, at the beginning of `scratch` [>= N, ...] if given."""
    if isinstance(index, slice):
        return x[index]
    if scratch is None:
        return x.index_select(0, index)
    return torch.index_select(x, 0, index, out=scratch[: len(index)])


def put(x: torch.Tensor, index: Index, values: torch.Tensor) -> None:
    """Write `values` [N, ...], of any dtype and strides, to those rows of x [R, ...], in place."""
    if isinstance(index, slice):
        x[index].copy_(values)
    else:
        x.index_copy_(0, index, values.to(x.dtype))
