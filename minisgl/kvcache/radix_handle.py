"""What a match or an insertion hands out: the way to one node."""

from __future__ import annotations

import torch

from minisgl.kvcache.base import BaseCacheHandle, Int32Array
from minisgl.kvcache.radix_node import TOKEN_BYTES, RadixNode
from minisgl.kvcache.slots import join_pages, pages_to_slots


class RadixCacheHandle(BaseCacheHandle):
    """The path from the root to `node`. Stays right when a node on it is split or merged later."""

    __slots__ = ("node",)

    def __init__(self, cached_len: int, node: RadixNode) -> None:
        self.cached_len = cached_len
        self.node = node

    def get_matched_pages(self) -> Int32Array:
        runs, num_bytes, node = [], 0, self.node
        while node.parent is not None:
            runs.append(node.page_bytes)
            num_bytes += len(node.token_bytes)
            node = node.parent
        assert num_bytes == self.cached_len * TOKEN_BYTES, f"{self.node} or a node above it was evicted"
        runs.reverse()
        return join_pages(runs)

    def get_matched_indices(self) -> torch.Tensor:
        return torch.from_numpy(pages_to_slots(self.get_matched_pages(), self.node.page_size))
