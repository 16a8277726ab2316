"""What a prefix cache is given, and what it gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch

from minisgl.utils.arrays import Int32Array

Ids = torch.Tensor | Int32Array


class Namespace(NamedTuple):
    """Who shares cached prefixes: those whose namespaces are equal part by part. Parts are never joined to one text.

    cache_salt: the client's. adapter: the name of what changes the weights, so that the same tokens have other KV.
    """

    cache_salt: str = ""
    adapter: str = ""


PUBLIC = Namespace()
DEFAULT_EVICTION = "lru"


class BaseCacheHandle(ABC):
    """A prefix that was found or inserted. Its slots stay valid only while it is locked.

    cached_len: its length in tokens, a multiple of the page size.
    """

    __slots__ = ("cached_len",)
    cached_len: int

    @abstractmethod
    def get_matched_pages(self) -> Int32Array:
        """[cached_len / page_size] page numbers, in order of position; a copy."""

    @abstractmethod
    def get_matched_indices(self) -> torch.Tensor:
        """[cached_len] int32 slots, in order of position; a copy."""


@dataclass(slots=True)
class MatchResult:
    """cuda_handle: the longest prefix on the device (the predecessor's name)."""

    cuda_handle: BaseCacheHandle


class InsertResult(NamedTuple):
    """cached_len: tokens that were in the cache before this insertion: the caller's own pages for them are duplicates.

    handle: everything inserted, not locked.
    """

    cached_len: int
    handle: BaseCacheHandle


class SizeInfo(NamedTuple):
    """Cached tokens: evictable ones are locked by nobody, protected ones by somebody."""

    evictable_size: int
    protected_size: int

    @property
    def total_size(self) -> int:
        return self.evictable_size + self.protected_size


class CachedRun(NamedTuple):
    """One node, for people to look at. depth: 0 below the root. head: its first token ids. length: of all of them."""

    depth: int
    head: Int32Array
    length: int
    ref_count: int


class Watch:
    """A waiting prompt's place in the cache.

    cached_len: how many of its tokens are cached, in whole pages. The cache sets it, nobody else. It may be too small
    until `advance_watches` has come to it; too large it never is.
    least_len: the least that were cached since it was made.
    """

    __slots__ = ("cached_len", "least_len")

    def __init__(self, cached_len: int) -> None:
        self.cached_len = cached_len
        self.least_len = cached_len
