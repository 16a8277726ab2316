"""SGLang's three prefix trees for `bench_radix.py`, each called as its own scheduler calls it, without a GPU.

What a tree gives back is collected in a list: what SGLang's allocator would then do with it is left out.
"""

from __future__ import annotations

import importlib.util
from abc import abstractmethod
from array import array
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from peer_stubs import stubbed
from radix_caches import TreeCache
from radix_workloads import Int32Array

with stubbed():
    from sglang.srt.mem_cache import base_prefix_cache as api
    from sglang.srt.mem_cache.cache_init_params import CacheInitParams
    from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey
    from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
    from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache


def slots_of(pages: Int32Array, page_size: int) -> torch.Tensor:
    """[pages * page_size] int64 slots."""
    return torch.from_numpy((pages[:, None].astype(np.int64) * page_size + np.arange(page_size)).ravel())


def pages_of(slots: list[torch.Tensor], page_size: int) -> Int32Array:
    return (torch.cat(slots).numpy()[::page_size] // page_size).astype(np.int32)


class FreedSlots:
    """What stands for the allocator: remembers what the tree gives back."""

    device = "cpu"

    def __init__(self, page_size: int) -> None:
        self.page_size = page_size
        self.slots: list[torch.Tensor] = []

    def free_segment(self, slots: torch.Tensor, *, start_pos: int) -> None:
        self.slots.append(slots)


class SglangCache(TreeCache):
    """A RadixKey over an array of int64 and a tensor of int64 slots in, a node and a tensor out."""

    def __init__(self, page_size: int, capacity: int) -> None:
        super().__init__(page_size, capacity)
        self._allocator = FreedSlots(page_size)
        self._cache: Any = self._make(
            CacheInitParams(
                disable=False,
                req_to_token_pool=None,
                token_to_kv_pool_allocator=self._allocator,
                page_size=page_size,
                tree_components=(ComponentType.FULL,),
            )
        )

    @abstractmethod
    def _make(self, params: CacheInitParams) -> Any: ...

    def prompt(self, ids: Int32Array) -> Any:
        return RadixKey(array("q", ids.astype(np.int64).tobytes()))

    def match(self, prompt: Any) -> Any:
        return self._cache.match_prefix(api.MatchPrefixParams(key=prompt))

    def cached_len(self, matched: Any) -> int:
        return matched.device_prefix_len

    def lock(self, matched: Any) -> Any:
        return self._cache.lock(matched.last_device_node)

    def unlock(self, lock: Any) -> None:
        self._cache.unlock(lock)

    def read(self, matched: Any) -> Any:
        return self._cache.path_device_indices(matched.last_device_node)

    def join(self, read: Any, new: Int32Array) -> Any:
        return torch.cat([read, slots_of(new, self.page_size)])

    def insert(self, prompt: Any, values: Any, matched: Any) -> Any:
        cached_len = matched.device_prefix_len
        return self._cache.insert(api.InsertParams(key=prompt, value=values, prev_prefix_len=cached_len))

    def evict(self, num_tokens: int) -> Any:
        self._allocator.slots = []
        self._cache.evict(api.EvictParams(num_tokens=num_tokens))
        return self._allocator.slots

    def freed(self, evicted: Any) -> Int32Array:
        return pages_of(evicted, self.page_size)


class SglangClassic(SglangCache):
    name = "SGLang Python"

    def _make(self, params: CacheInitParams) -> Any:
        return RadixCache(params)


class SglangRust(SglangCache):
    """The unified cache with its Rust core: SGLang's default."""

    name = "SGLang Rust"

    def _make(self, params: CacheInitParams) -> Any:
        cache = UnifiedRadixCache(params)
        assert type(cache.tree_core).__name__.startswith("Rust"), "SGLang fell back to its Python tree core"
        return cache


class SglangCpp(TreeCache):
    """SGLang's C++ tree, as its RadixCacheCpp calls it: a list of tokens in; it finds an inserted node by a match."""

    name = "SGLang C++"
    extension: ModuleType

    def __init__(self, page_size: int, capacity: int) -> None:
        super().__init__(page_size, capacity)
        self._tree = self.extension.RadixTreeCpp(
            disabled=False, host_size=None, page_size=page_size, write_through_threshold=2
        )

    def prompt(self, ids: Int32Array) -> Any:
        return ids.tolist()

    def match(self, prompt: Any) -> Any:
        return self._tree.match_prefix(prompt)

    def cached_len(self, matched: Any) -> int:
        return sum(map(len, matched[0]))

    def lock(self, matched: Any) -> Any:
        self._tree.lock_ref(matched[2], True)
        return matched[2]

    def lock_inserted(self, prompt: Any, inserted: Any) -> Any:
        return self.lock(self.match(prompt))

    def unlock(self, lock: Any) -> None:
        self._tree.lock_ref(lock, False)

    def read(self, matched: Any) -> Any:
        runs = matched[0]
        return runs[0] if len(runs) == 1 else torch.cat(runs) if runs else torch.empty(0, dtype=torch.int64)

    def join(self, read: Any, new: Int32Array) -> Any:
        return torch.cat([read, slots_of(new, self.page_size)])

    def insert(self, prompt: Any, values: Any, matched: Any) -> Any:
        return self._tree.writing_through(prompt, values)

    def evict(self, num_tokens: int) -> Any:
        return self._tree.evict(num_tokens)

    def freed(self, evicted: Any) -> Int32Array:
        return pages_of(evicted, self.page_size)


def load_cpp_tree(folder: Path) -> type[SglangCpp]:
    """The C++ tree, compiled from its folder in SGLang."""
    spec = importlib.util.spec_from_file_location("cpp_radix_tree", folder / "radix_tree.py")
    assert spec is not None, folder
    assert spec.loader is not None, folder
    SglangCpp.extension = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(SglangCpp.extension)
    return SglangCpp
