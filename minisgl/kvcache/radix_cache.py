"""The radix cache: every prefix whose KV was computed stays reusable, in a tree over token ids, until it is evicted.

Source: RadixAttention, arXiv:2312.07104 sec. 3. Plain Python on `bytes` and small NumPy arrays: a whole node is
compared by one memcmp, straight from the caller's memory, and NumPy looks only at the node in which a match ends.
"""

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
from minisgl.kvcache.lru_queue import LRUQueue
from minisgl.kvcache.radix_check import check_nodes, check_pages_held_once
from minisgl.kvcache.radix_forest import RadixForest, RadixRoot
from minisgl.kvcache.radix_node import TOKEN_BYTES, RadixNode
from minisgl.kvcache.slots import pages_to_slots, slots_to_pages, to_int32
from minisgl.utils.math import align_down, div_ceil

_NO_PAGES: Int32Array = np.empty(0, np.int32)


class RadixCacheHandle(BaseCacheHandle):
    """The path from the root to `node`. Stays right when a node on it is split later."""

    __slots__ = ("node",)

    def __init__(self, cached_len: int, node: RadixNode) -> None:
        self.cached_len = cached_len
        self.node = node

    def get_matched_pages(self) -> Int32Array:
        runs, num_bytes, node = [_NO_PAGES], 0, self.node
        while node.parent is not None:
            runs.append(node.pages)
            num_bytes += len(node.token_bytes)
            node = node.parent
        assert num_bytes == self.cached_len * TOKEN_BYTES, f"{self.node} or a node above it was evicted"
        return np.concatenate(runs[::-1])

    def get_matched_indices(self) -> torch.Tensor:
        return torch.from_numpy(pages_to_slots(self.get_matched_pages(), self.node.page_size))


class RadixPrefixCache(BasePrefixCache):
    """A radix tree of cached prefixes for each namespace, evicted leaf by leaf in LRU order, whosever they are.

    The clock counts calls of match and insert, so a trace replays to the same evictions everywhere.
    """

    shares: ClassVar[bool] = True

    def __init__(self, device: torch.device, page_size: int | None = None) -> None:
        super().__init__(device, page_size)
        self._page_bytes = self.page_size * TOKEN_BYTES
        self._clock = 0
        self._evictable_size = 0
        self._protected_size = 0
        self._queue = LRUQueue()
        self._forest = RadixForest()
        self._reclaimable: list[Int32Array] = []  # pages of flushed nodes whose last reader has left

    @property
    def root_node(self) -> RadixNode:
        """The root of the public namespace."""
        return self._forest.public

    @property
    def size_info(self) -> SizeInfo:
        return SizeInfo(self._evictable_size, self._protected_size)

    def match_prefix(self, input_ids: Ids, namespace: Namespace = PUBLIC) -> MatchResult:
        """Longest prefix of `input_ids` that is cached in `namespace`, in whole pages.

        input_ids: [T] int32 on the host. The handle's cached_len is in tokens, a multiple of page_size, maybe 0.
        Refreshes the nodes on the way and splits the one in which the match ends, so that a lock pins exactly what
        was hit; sizes do not change. The slots stay valid only while the handle is locked.
        """
        root = self._forest.find(namespace) or self._forest.public
        tokens = self._whole_pages(input_ids) if root.namespace == namespace else memoryview(b"")
        node, num_bytes = self._walk(root, tokens)
        return MatchResult(RadixCacheHandle(num_bytes // TOKEN_BYTES, node))

    def insert_prefix(self, input_ids: Ids, indices: Ids, namespace: Namespace = PUBLIC) -> InsertResult:
        """`insert_pages` with `indices` [T] int32, the slot of each token; ValueError if they do not form pages."""
        if len(indices) != len(input_ids):
            raise ValueError(f"{len(indices)} slots were given for {len(input_ids)} tokens")
        return self.insert_pages(input_ids, slots_to_pages(to_int32(indices), self.page_size), namespace)

    def insert_pages(self, input_ids: Ids, pages: Int32Array, namespace: Namespace = PUBLIC) -> InsertResult:
        """Remember that `pages` hold the KV of `input_ids`; what is cached already keeps its own pages.

        input_ids: [T] int32; a partial page at the end is ignored. pages: [T // page_size] int32. Both are copied.
        What is new becomes one evictable leaf; the way to it is refreshed and split as by a match.
        """
        tokens = self._whole_pages(input_ids)
        assert len(tokens) == len(pages) * self._page_bytes, f"{len(input_ids)} tokens do not fill {len(pages)} pages"
        root = self._forest.plant(namespace) if tokens else self._forest.public
        node, num_bytes = self._walk(root, tokens)
        if num_bytes < len(tokens):
            node = self._add_leaf(node, tokens[num_bytes:].tobytes(), pages[num_bytes // self._page_bytes :])
        return InsertResult(num_bytes // TOKEN_BYTES, RadixCacheHandle(len(tokens) // TOKEN_BYTES, node))

    def lock_handle(self, handle: BaseCacheHandle, unlock: bool = False) -> None:
        """Keep the handle's path, from its node to the root, from eviction; or take one such lock back. Locks count."""
        assert isinstance(handle, RadixCacheHandle), f"not a handle of this cache: {handle}"
        if unlock:
            self._unlock(handle.node)
        else:
            self._lock(handle.node)

    def evict_pages(self, num_pages: int) -> Int32Array:
        """Forget leaves in LRU order until at least `num_pages` pages are free; the numbers of these pages.

        Leaves go whole, so it may be more. A parent may become the next leaf. AssertionError if too few are evictable.
        """
        assert num_pages * self.page_size <= self._evictable_size, (
            f"cannot evict {num_pages * self.page_size} tokens: {self._evictable_size} evictable, "
            f"{self._protected_size} protected"
        )
        freed, num_freed = [_NO_PAGES], 0
        while num_freed < num_pages:
            leaf = self._queue.pop()
            freed.append(leaf.pages)
            num_freed += len(leaf.pages)
            parent = leaf.detach()
            self._queue.push(parent)
            self._forest.prune(parent)
        self._evictable_size -= num_freed * self.page_size
        return np.concatenate(freed)

    def evict(self, size: int) -> torch.Tensor:
        return torch.from_numpy(pages_to_slots(self.evict_pages(div_ceil(size, self.page_size)), self.page_size))

    def flush(self) -> Int32Array:
        """Begin an epoch in which nothing is cached. What is locked stays until its last lock is given up.

        Looks at every node once. Returns the numbers of the pages that nobody has locked.
        """
        self._queue.clear()
        freed = [_NO_PAGES]
        for node in list(self._forest.nodes()):
            if node.ref_count == 0:
                freed.append(node.pages)
                node.detach()
        self._evictable_size = 0
        self._forest.flush()
        return np.concatenate(freed)

    def reclaim(self) -> Int32Array:
        pages = np.concatenate([_NO_PAGES, *self._reclaimable])
        self._reclaimable.clear()
        return pages

    def cached_pages(self) -> Int32Array:
        return np.concatenate([_NO_PAGES, *(node.pages for node in self._forest.nodes()), *self._reclaimable])

    def runs(self, head_len: int) -> Iterator[CachedRun]:
        stack = [(0, node) for root in reversed(self._forest.roots()) for node in reversed(root.children.values())]
        while stack:
            depth, node = stack.pop()
            head = np.frombuffer(node.token_bytes[: head_len * TOKEN_BYTES], np.int32)
            yield CachedRun(depth, head, node.length, node.ref_count)
            stack += [(depth + 1, child) for child in reversed(node.children.values())]

    def reset(self) -> None:
        assert self._protected_size == 0, f"cannot reset the cache: {self._protected_size} tokens are locked"
        self.flush()

    def check_integrity(self) -> None:
        nodes = list(self._forest.nodes())
        self._forest.check_integrity()
        check_nodes(self._forest.roots(), nodes, self.page_size, self._clock)
        check_pages_held_once(nodes)
        self._queue.check_integrity(nodes)
        evictable = sum(node.length for node in nodes if node.ref_count == 0)
        counted = SizeInfo(evictable, sum(node.length for node in nodes) - evictable)
        assert counted == self.size_info, f"sizes drifted: the tree has {counted}, the counters say {self.size_info}"

    def _whole_pages(self, input_ids: Ids) -> memoryview:
        """The bytes of the whole pages of `input_ids`, not copied."""
        ids = to_int32(input_ids)
        num_bytes = len(ids) // self.page_size * self._page_bytes
        return ids.data.cast("B")[:num_bytes] if num_bytes else memoryview(b"")

    def _walk(self, root: RadixNode, tokens: memoryview) -> tuple[RadixNode, int]:
        """Visit the nodes that `tokens` (bytes of whole pages) lead to: the last one, and the bytes matched up to it.

        A node that matches in part is split. Its front half has the other half as its only child, which does not match,
        so the loop ends there.
        """
        self._clock += 1
        node, end, page_bytes = root, 0, self._page_bytes
        while (child := node.children.get(tokens[end : end + page_bytes].tobytes())) is not None:
            num_bytes = len(child.token_bytes)
            piece = tokens[end : end + num_bytes]
            matched = len(piece)
            if not child.token_bytes.startswith(piece):
                matched = align_down(child.count_matching(piece) * TOKEN_BYTES, page_bytes)
            node = child if matched == num_bytes else child.split_at(matched // TOKEN_BYTES)
            node.last_access = self._clock
            end += matched
        return node, end

    def _add_leaf(self, parent: RadixNode, token_bytes: bytes, pages: Int32Array) -> RadixNode:
        leaf = RadixNode(token_bytes, np.array(pages, np.int32), self._clock)
        leaf.attach(parent)
        self._queue.push(leaf)
        self._evictable_size += leaf.length
        return leaf

    def _lock(self, node: RadixNode) -> None:
        num_bytes = 0
        while node.parent is not None:
            if node.ref_count == 0:
                num_bytes += len(node.token_bytes)
            node.ref_count += 1
            node = node.parent
        assert isinstance(node, RadixRoot), f"{node}, or a node below it, was evicted before it was locked"
        self._move_to_protected(num_bytes // TOKEN_BYTES)

    def _unlock(self, node: RadixNode) -> None:
        assert node.ref_count > 0, f"{node} is unlocked more often than it was locked"
        first, num_bytes = node, 0
        while node.parent is not None:
            node.ref_count -= 1
            if node.ref_count == 0:
                num_bytes += len(node.token_bytes)
            node = node.parent
        self._move_to_protected(-num_bytes // TOKEN_BYTES)
        assert isinstance(node, RadixRoot), f"{first}, or a node above it, was evicted while it was locked"
        if node.epoch == self._forest.epoch:
            self._queue.push(first)
        else:
            self._bury(first)

    def _bury(self, node: RadixNode) -> None:
        """A flushed node goes with its last reader, and those above it that are left without one go too."""
        while node.ref_count == 0:
            self._reclaimable.append(node.pages)
            self._evictable_size -= node.length
            node = node.detach()
        self._forest.prune(node)

    def _move_to_protected(self, num_tokens: int) -> None:
        self._evictable_size -= num_tokens
        self._protected_size += num_tokens
