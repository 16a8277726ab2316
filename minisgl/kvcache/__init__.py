"""What is kept of past requests: prefix caches (which page holds what) and the pool of K and V tensors."""

from __future__ import annotations

import torch

from minisgl.kvcache.base import BasePrefixCache
from minisgl.kvcache.naive_cache import NaivePrefixCache
from minisgl.kvcache.pool import MHAKVCache
from minisgl.kvcache.radix_cache import RadixPrefixCache
from minisgl.kvcache.types import (
    DEFAULT_EVICTION,
    PUBLIC,
    BaseCacheHandle,
    InsertResult,
    MatchResult,
    Namespace,
    SizeInfo,
    Watch,
)
from minisgl.utils.registry import Registry

PREFIX_CACHES: Registry[type[BasePrefixCache]] = Registry("prefix cache")
PREFIX_CACHES.register("naive")(NaivePrefixCache)
PREFIX_CACHES.register("radix")(RadixPrefixCache)


def create_prefix_cache(
    device: torch.device,
    type: str,
    page_size: int | None = None,
    eviction: str = DEFAULT_EVICTION,
    ghost_tokens: int | None = None,
) -> BasePrefixCache:
    """A new prefix cache of the kind named `type`, that evicts by the policy named `eviction`; ValueError if there is
    none. page_size: None asks the context. ghost_tokens: see `BasePrefixCache`.
    """
    return PREFIX_CACHES[type](device, page_size, eviction, ghost_tokens)


__all__ = [
    "PREFIX_CACHES",
    "PUBLIC",
    "BaseCacheHandle",
    "BasePrefixCache",
    "InsertResult",
    "MHAKVCache",
    "MatchResult",
    "NaivePrefixCache",
    "Namespace",
    "RadixPrefixCache",
    "SizeInfo",
    "Watch",
    "create_prefix_cache",
]
