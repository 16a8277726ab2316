"""What a match or an insertion hands out: the way to one node."""

from __future__ import annotations

import torch

from minisgl.kvcache.radix_node import TOKEN_BYTES, RadixNode
from minisgl.kvcache.radix_walk import path_len
from minisgl.kvcache.slots import join_pages, pages_to_slots
from minisgl.kvcache.types import BaseCacheHandle
from minisgl.utils.arrays import Int32Array


class RadixCacheHandle(BaseCacheHandle):
    """The path from the root to `node`. Stays right when a node on it is split or absorbed later."""

    __slots__ = ("node",)

    def __init__(self, cached_len: int, node: RadixNode) -> None:
        self.cached_len = cached_len
        self.node = node

    @property
    def was_absorbed(self) -> bool:
        """Whether its node is part of a longer one now; that cannot happen while it is locked."""
        return self.node.dead and bool(self.node.children)

    def find_end(self) -> tuple[RadixNode, int]:
        """The node in which the path ends now, and how many tokens of this node lie beyond the end."""
        node = self.node
        while node.dead and node.children:
            node = next(iter(node.children.values()))
        end = path_len(node)
        while node.parent is not None and end - node.length >= self.cached_len:
            end -= node.length
            node = node.parent
        assert not node.dead, f"{node} was purged"
        return node, end - self.cached_len

    def get_matched_pages(self) -> Int32Array:
        node, num_beyond = self.find_end() if self.node.dead and self.was_absorbed else (self.node, 0)
        runs, num_bytes = [], 0
        while node.parent is not None:
            runs.append(node.page_bytes)
            num_bytes += len(node.token_bytes)
            node = node.parent
        assert num_bytes == (self.cached_len + num_beyond) * TOKEN_BYTES, f"{self.node} or a node above it was evicted"
        runs.reverse()
        pages = join_pages(runs)
        return pages[: len(pages) * self.cached_len // (self.cached_len + num_beyond)] if num_beyond else pages

    def get_matched_indices(self) -> torch.Tensor:
        pages = self.get_matched_pages()
        return torch.from_numpy(pages_to_slots(pages, self.cached_len // max(1, len(pages))))
