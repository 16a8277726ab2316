"""Arrays of tokens, pages and slots: a page is `page_size` consecutive slots, slot = page * page_size + offset.

Shape letters: P pages, T tokens.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch

from minisgl.kvcache.types import Ids
from minisgl.utils.arrays import Int32Array

Tokens = bytes | memoryview  # of int32 token ids
INT32 = np.dtype(np.int32)  # of `np.int32` itself NumPy has to look it up at each call
FEW_IDS = 4096


def to_int32(ids: Ids) -> Int32Array:
    """`ids` as a contiguous int32 array; shares memory with `ids` where it is one already."""
    return np.ascontiguousarray(ids.numpy() if isinstance(ids, torch.Tensor) else ids, dtype=np.int32)


def join_pages(runs: Iterable[bytes]) -> Int32Array:
    """Runs of page numbers, 4 bytes each -> one new array."""
    return np.frombuffer(bytearray().join(runs), INT32)


def to_bytes(ids: Ids) -> Tokens:
    """`ids` as int32 bytes: a copy of few, which is quicker to cut than a view, and a view of many."""
    if len(ids) > FEW_IDS:
        return to_view(ids)
    if type(ids) is not np.ndarray or ids.dtype is not INT32:
        ids = to_int32(ids)
    return ids.tobytes()


def to_view(ids: Ids) -> memoryview:
    """`ids` as int32 bytes, not copied where they are int32 already."""
    return to_int32(ids).data.cast("B") if len(ids) else memoryview(b"")


def pages_to_slots(pages: Int32Array, page_size: int) -> Int32Array:
    """[P] page numbers -> [P * page_size] slots, a new array."""
    offsets = np.arange(page_size, dtype=np.int32)
    return (pages[:, None] * np.int32(page_size) + offsets).ravel()


def slots_to_pages(slots: Int32Array, page_size: int) -> Int32Array:
    """[T] slots -> [T // page_size] page numbers; a partial page at the end is ignored.

    Raises ValueError where a page's slots are not the consecutive ones of one page.
    """
    num_slots = len(slots) // page_size * page_size
    pages = slots[:num_slots:page_size] // np.int32(page_size)
    wrong = np.flatnonzero(pages_to_slots(pages, page_size) != slots[:num_slots])
    if len(wrong) > 0:
        at = int(wrong[0])
        raise ValueError(f"slot {slots[at]} at position {at} does not continue a page of page_size={page_size}")
    return pages


def common_prefix_len(a: Int32Array, b: Int32Array) -> int:
    """How many leading tokens two runs share."""
    n = min(len(a), len(b))
    differs = a[:n] != b[:n]
    first = int(differs.argmax()) if n else 0
    return first if n and differs[first] else n
