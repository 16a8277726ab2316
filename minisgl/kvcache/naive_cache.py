"""The cache that keeps nothing: every request computes its whole prompt and frees all its pages at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import torch

from minisgl.core import Explanation, PrefixGroup
from minisgl.kvcache.base import BasePrefixCache
from minisgl.kvcache.eviction import EVICTION_POLICIES
from minisgl.kvcache.naive_view import NaiveView
from minisgl.kvcache.types import (
    DEFAULT_EVICTION,
    PUBLIC,
    BaseCacheHandle,
    CachedRun,
    Ids,
    InsertResult,
    MatchResult,
    Namespace,
    SizeInfo,
    Watch,
)
from minisgl.utils.arrays import NO_IDS, Int32Array


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

    def __init__(
        self,
        device: torch.device,
        page_size: int | None = None,
        eviction: str = DEFAULT_EVICTION,
        ghost_tokens: int | None = None,
    ) -> None:
        """ValueError for a policy that there is not, although none is ever needed."""
        super().__init__(device, page_size, eviction, ghost_tokens)
        EVICTION_POLICIES[eviction]
        self.view = NaiveView(self.page_size)

    def match_prefix(self, input_ids: Ids, namespace: Namespace = PUBLIC) -> MatchResult:
        return MatchResult(NaiveCacheHandle())

    def probe(self, input_ids: Ids, namespace: Namespace = PUBLIC) -> int:
        return 0

    def explain(
        self, input_ids: Ids, namespace: Namespace = PUBLIC, handle: BaseCacheHandle | None = None
    ) -> Explanation:
        return Explanation(not_looked_up=len(input_ids))

    def note_tail(self, handle: BaseCacheHandle, input_ids: Ids, namespace: Namespace = PUBLIC) -> None:
        """Nothing was kept of what is before it."""

    def insert_pages(
        self, input_ids: Ids, pages: Int32Array, namespace: Namespace = PUBLIC, priority: int = 0
    ) -> InsertResult:
        return InsertResult(0, NaiveCacheHandle())

    def insert_prefix(self, input_ids: Ids, indices: Ids, namespace: Namespace = PUBLIC) -> InsertResult:
        return InsertResult(0, NaiveCacheHandle())

    def lock_handle(self, handle: BaseCacheHandle, unlock: bool = False) -> None:
        assert isinstance(handle, NaiveCacheHandle), f"not a handle of this cache: {handle}"

    def find_groups(self, handles: Sequence[BaseCacheHandle]) -> tuple[PrefixGroup, ...]:
        return ()

    def evict_pages(self, num_pages: int, trim: bool = False) -> Int32Array:
        assert num_pages == 0, f"cannot evict {num_pages} pages: a naive cache holds none"
        return np.empty(0, np.int32)

    def evict(self, size: int) -> torch.Tensor:
        assert size == 0, f"cannot evict {size} tokens: a naive cache holds none"
        return torch.empty(0, dtype=torch.int32)

    def purge(self, namespace: Namespace | None = None, prefix: Ids = NO_IDS) -> Int32Array:
        return np.empty(0, np.int32)

    def reclaim(self) -> Int32Array:
        return np.empty(0, np.int32)

    def watch(self, input_ids: Ids, namespace: Namespace = PUBLIC) -> Watch:
        return Watch(0)

    def unwatch(self, watch: Watch) -> None:
        """Nothing was kept of it."""

    def expect(self, watch: Watch, expected: bool, order: int | None = None) -> None:
        """Nothing is cached that could be spared."""

    def advance_watches(self, budget: int) -> list[Watch]:
        return []

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
