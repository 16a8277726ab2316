"""The cache that keeps nothing: every request computes its whole prompt and frees all its pages at the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import torch

from minisgl.kvcache.base import (
    PUBLIC,
    BaseCacheHandle,
    BasePrefixCache,
    CachedRun,
    Ids,
    InsertResult,
    Int32Array,
    MatchResult,
    Namespace,
    SizeInfo,
)


class NaiveCacheHandle(BaseCacheHandle):
    """The empty prefix."""

    __slots__ = ()

    def __init__(self) -> None:
        self.cached_len = 0

    def get_matched_pages(self) -> Int32Array:
        return np.empty(0, np.int32)

    def get_matched_indices(self) -> torch.Tensor:
        return torch.empty(0, dtype=torch.int32)


class NaivePrefixCache(BasePrefixCache):
    """Matches nothing and keeps nothing: pages given to an insertion stay the caller's, who frees them."""

    shares: ClassVar[bool] = False

    def match_prefix(self, input_ids: Ids, namespace: Namespace = PUBLIC) -> MatchResult:
        return MatchResult(NaiveCacheHandle())

    def insert_pages(self, input_ids: Ids, pages: Int32Array, namespace: Namespace = PUBLIC) -> InsertResult:
        return InsertResult(0, NaiveCacheHandle())

    def insert_prefix(self, input_ids: Ids, indices: Ids, namespace: Namespace = PUBLIC) -> InsertResult:
        return InsertResult(0, NaiveCacheHandle())

    def lock_handle(self, handle: BaseCacheHandle, unlock: bool = False) -> None:
        assert isinstance(handle, NaiveCacheHandle), f"not a handle of this cache: {handle}"

    def evict_pages(self, num_pages: int) -> Int32Array:
        assert num_pages == 0, f"cannot evict {num_pages} pages: a naive cache holds none"
        return np.empty(0, np.int32)

    def evict(self, size: int) -> torch.Tensor:
        assert size == 0, f"cannot evict {size} tokens: a naive cache holds none"
        return torch.empty(0, dtype=torch.int32)

    def flush(self) -> Int32Array:
        return np.empty(0, np.int32)

    def reclaim(self) -> Int32Array:
        return np.empty(0, np.int32)

    @property
    def size_info(self) -> SizeInfo:
        return SizeInfo(0, 0)

    def cached_pages(self) -> Int32Array:
        return np.empty(0, np.int32)

    def runs(self, head_len: int) -> Iterator[CachedRun]:
        return iter(())

    def reset(self) -> None:
        """Nothing to forget."""

    def check_integrity(self) -> None:
        """Nothing to recount."""
