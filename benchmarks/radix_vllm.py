"""vLLM's cache of hashed blocks for `bench_radix.py`, called as its scheduler calls it, without a GPU."""

from __future__ import annotations

from itertools import count
from typing import Any

import torch
from peer_stubs import stubbed
from radix_caches import Clock, PrefixCache
from radix_workloads import FreePages, Int32Array

with stubbed():
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import get_hash_fn_by_name
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.request import Request


class VllmCache(PrefixCache):
    """Hashed blocks: the manager owns the free ones. A match hashes the prompt; the last token is never a hit."""

    is_tree = False
    hash_name: str

    def __init__(self, page_size: int, capacity: int) -> None:
        super().__init__(page_size, capacity)
        spec = FullAttentionSpec(block_size=page_size, num_kv_heads=1, head_size=16, dtype=torch.float32)
        config = KVCacheConfig(
            num_blocks=capacity // page_size + 1, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["0"], spec)]
        )
        self._manager = KVCacheManager(config, 1 << 20, page_size, page_size)
        hash_function = get_hash_fn_by_name(self.hash_name)
        init_none_hash(hash_function)
        self._hasher = get_request_block_hasher(page_size, hash_function)
        self._sampling = SamplingParams(max_tokens=1)
        self._uids = count()

    def prompt(self, ids: Int32Array) -> Any:
        request = Request(str(next(self._uids)), ids.tolist(), self._sampling, None)
        request._block_hasher = self._hasher
        return request

    def match(self, prompt: Any) -> Any:
        prompt.update_block_hashes()
        return self._manager.get_computed_blocks(prompt)

    def cached_len(self, matched: Any) -> int:
        return matched[1]

    def allocate(self, prompt: Any, matched: Any) -> None:
        blocks, num_cached, _ = matched
        new = self._manager.allocate_slots(prompt, prompt.num_tokens - num_cached, num_cached, blocks)
        assert new is not None, "the pool is too small"

    def put(self, ids: Int32Array, free: FreePages) -> None:
        prompt = self.prompt(ids)
        self.allocate(prompt, self.match(prompt))
        self._manager.free(prompt)

    def evict(self, num_tokens: int) -> Any:
        return self._manager.block_pool.get_new_blocks(num_tokens // self.page_size)

    def turn(self, clock: Clock, ids: Int32Array, free: FreePages) -> None:
        self.finish(clock, self.serve(clock, ids, free))

    def serve(self, clock: Clock, ids: Int32Array, free: FreePages) -> Any:
        prompt = self.prompt(ids)
        clock.others(self.allocate, prompt, clock.matches(self.match, prompt))
        return prompt

    def finish(self, clock: Clock, lock: Any) -> None:
        clock.others(self._manager.free, lock)


class VllmSha256(VllmCache):
    name = "vLLM sha256"
    hash_name = "sha256"


class VllmXxhash(VllmCache):
    name = "vLLM xxhash"
    hash_name = "xxhash"
