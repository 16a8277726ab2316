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
    DEFAULT_EVICTION,
    NO_IDS,
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
    Watch,
)
from minisgl.kvcache.eviction import EVICTION_POLICIES
from minisgl.kvcache.purge import kill, nodes_to_purge
from minisgl.kvcache.radix_check import check_nodes, check_pages_held_once
from minisgl.kvcache.radix_forest import RadixForest, RadixRoot
from minisgl.kvcache.radix_handle import RadixCacheHandle
from minisgl.kvcache.radix_node import PAGE_BYTES, TOKEN_BYTES, RadixNode
from minisgl.kvcache.radix_walk import seek
from minisgl.kvcache.slots import join_pages, pages_to_slots, slots_to_pages, to_int32
from minisgl.kvcache.watch import RadixWatch, WatchList
from minisgl.utils.math import align_down, div_ceil


class RadixPrefixCache(BasePrefixCache):
    """A radix tree of cached prefixes for each namespace, evicted leaf by leaf in the order of a policy.

    The clock counts calls of match and insert, so a trace replays to the same evictions everywhere.
    """

    shares: ClassVar[bool] = True

    def __init__(self, device: torch.device, page_size: int | None = None, eviction: str = DEFAULT_EVICTION) -> None:
        super().__init__(device, page_size)
        self._page_bytes = self.page_size * TOKEN_BYTES
        self._clock = 0
        self._evictable_size = 0
        self._protected_size = 0
        self._forest = RadixForest(EVICTION_POLICIES[eviction])
        self._watches = WatchList(self.page_size)
        self._reclaimable: list[bytes] = []  # pages of purged nodes whose last reader has left

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
        root = self._forest.find(namespace)
        if root is None:
            root, input_ids = self._forest.public, NO_IDS
        node, num_bytes = self._walk(root, self._whole_pages(input_ids))
        if root.queue.takes_notes:
            root.queue.matched(node)
        return MatchResult(RadixCacheHandle(num_bytes // TOKEN_BYTES, node))

    def probe(self, input_ids: Ids, namespace: Namespace = PUBLIC) -> int:
        root = self._forest.find(namespace)
        return 0 if root is None else seek(root, self._whole_pages(input_ids), 0, self.page_size)[1]

    def insert_prefix(self, input_ids: Ids, indices: Ids, namespace: Namespace = PUBLIC) -> InsertResult:
        """`insert_pages` with `indices` [T] int32, the slot of each token; ValueError if they do not form pages."""
        if len(indices) != len(input_ids):
            raise ValueError(f"{len(indices)} slots were given for {len(input_ids)} tokens")
        return self.insert_pages(input_ids, slots_to_pages(to_int32(indices), self.page_size), namespace)

    def insert_pages(
        self, input_ids: Ids, pages: Int32Array, namespace: Namespace = PUBLIC, priority: int = 0
    ) -> InsertResult:
        """Remember that `pages` hold the KV of `input_ids`; what is cached already keeps its own pages.

        input_ids: [T] int32; a partial page at the end is ignored. pages: [T // page_size] int32. Both are copied.
        What is new becomes one evictable leaf; the way to it is refreshed and split as by a match.
        """
        tokens = self._whole_pages(input_ids)
        assert len(tokens) == len(pages) * self._page_bytes, f"{len(input_ids)} tokens do not fill {len(pages)} pages"
        root = self._forest.plant(namespace) if tokens else self._forest.public
        node, num_bytes = self._walk(root, tokens)
        is_new = num_bytes < len(tokens)
        if is_new:
            node = self._add_leaf(node, tokens, num_bytes, pages)
        if root.queue.takes_notes:
            root.queue.inserted(node, is_new, priority)
        if is_new:
            root.queue.push(node)
        return InsertResult(num_bytes // TOKEN_BYTES, RadixCacheHandle(len(tokens) // TOKEN_BYTES, node))

    def lock_handle(self, handle: BaseCacheHandle, unlock: bool = False) -> None:
        """Keep the handle's path, from its node to the root, from eviction; or take one such lock back. Locks count."""
        assert isinstance(handle, RadixCacheHandle), f"not a handle of this cache: {handle}"
        if unlock:
            self._unlock(handle.node)
        else:
            self._lock(handle.node)

    def evict_pages(self, num_pages: int, trim: bool = False) -> Int32Array:
        """Forget leaves in the policy's order until `num_pages` pages are free; the numbers of these pages.

        A parent may become the next leaf. AssertionError if too few are evictable.
        """
        assert num_pages * self.page_size <= self._evictable_size, (
            f"cannot evict {num_pages * self.page_size} tokens: {self._evictable_size} evictable, "
            f"{self._protected_size} protected"
        )
        freed: list[bytes] = []
        missing = num_pages
        while missing > 0:
            freed.append(self._evict_leaf(self._forest.next_root(), missing if trim else None))
            missing -= len(freed[-1]) // PAGE_BYTES
        self._evictable_size -= (num_pages - missing) * self.page_size
        return join_pages(freed)

    def evict(self, size: int) -> torch.Tensor:
        return torch.from_numpy(pages_to_slots(self.evict_pages(div_ceil(size, self.page_size)), self.page_size))

    def purge(self, namespace: Namespace | None = None, prefix: Ids = NO_IDS) -> Int32Array:
        roots = self._forest.roots() if namespace is None else [self._forest.find(namespace)]
        tokens = memoryview(to_int32(prefix).tobytes())
        freed: list[bytes] = []
        for root in roots:
            tops = nodes_to_purge(root, tokens, self.page_size) if root is not None else []
            if tops:
                assert root is not None
                freed += self._purge(root, tops)
        self._evictable_size -= sum(map(len, freed)) // PAGE_BYTES * self.page_size
        return join_pages(freed)

    def reclaim(self) -> Int32Array:
        if not self._reclaimable:
            return NO_IDS
        pages = join_pages(self._reclaimable)
        self._reclaimable.clear()
        return pages

    def watch(self, input_ids: Ids, namespace: Namespace = PUBLIC) -> Watch:
        return self._watches.add(self._forest.plant(namespace), self._whole_pages(input_ids))

    def unwatch(self, watch: Watch) -> None:
        assert isinstance(watch, RadixWatch), f"not a watch of this cache: {watch}"
        self._watches.remove(watch)
        self._forest.prune(watch.root)

    def expect(self, watch: Watch, expected: bool) -> None:
        assert isinstance(watch, RadixWatch), f"not a watch of this cache: {watch}"
        self._watches.expect(watch, expected)

    def advance_watches(self, budget: int) -> list[Watch]:
        return self._watches.advance(budget)

    def cached_pages(self) -> Int32Array:
        held = [node.page_bytes for node in (*self._forest.nodes(), *self._forest.dead)]
        return join_pages(held + self._reclaimable)

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
        self._forest.check_integrity()
        nodes = list(self._forest.nodes())
        check_nodes(self._forest.roots(), nodes, list(self._forest.dead), self.page_size, self._clock)
        check_pages_held_once(self.cached_pages())
        self._watches.check_integrity([*self._forest.roots(), *nodes])
        unlocked = sum(node.length for node in nodes if node.ref_count == 0)
        locked = sum(node.length for node in (*nodes, *self._forest.dead) if node.ref_count)
        sizes = SizeInfo(unlocked, locked)
        assert sizes == self.size_info, f"sizes drifted: the tree has {sizes}, the counters say {self.size_info}"

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
            end += matched
            node = child if matched == num_bytes else self._split(child, matched // TOKEN_BYTES, end // TOKEN_BYTES)
            node.last_access = self._clock
        return node, end

    def _split(self, node: RadixNode, pos: int, cached_len: int) -> RadixNode:
        """Split `node` after `pos` tokens; the front half, whose path is `cached_len` tokens long."""
        front = node.split_at(pos)
        self._watches.split(front, node, cached_len)
        return front

    def _add_leaf(self, parent: RadixNode, tokens: memoryview, start: int, pages: Int32Array) -> RadixNode:
        """A node for `tokens` (bytes) from `start` on, below `parent`, whose path ends there."""
        page_bytes = np.ascontiguousarray(pages[start // self._page_bytes :], np.int32).tobytes()
        leaf = RadixNode(tokens[start:].tobytes(), page_bytes, self._clock)
        leaf.attach(parent)
        self._evictable_size += leaf.length
        self._watches.inserted(parent, start // TOKEN_BYTES, leaf.first_page)
        return leaf

    def _evict_leaf(self, root: RadixRoot, max_pages: int | None) -> bytes:
        """Evict what goes next in this namespace, of it at most `max_pages` from its end; their numbers as bytes."""
        queue = root.queue
        leaf = queue.first()
        assert leaf is not None, f"no leaf of {root.namespace} is unlocked"
        trims = max_pages is not None and leaf.num_pages > max_pages
        if queue.takes_notes:
            queue.evicting(leaf, max_pages * self.page_size if max_pages is not None and trims else leaf.length)
        if max_pages is not None and trims:
            freed = leaf.trim(max_pages)
            self._watches.shorten(leaf, leaf)
            return freed
        queue.take(leaf)
        parent = leaf.detach()
        self._watches.shorten(leaf, parent)
        queue.push(parent)
        self._forest.prune(parent)
        return leaf.page_bytes

    def _purge(self, root: RadixRoot, tops: list[RadixNode]) -> list[bytes]:
        """Take `tops`, children of one node, and all below them out of the tree; pages of those nobody has locked."""
        killed, parent = kill(tops)
        freed = []
        for node in killed:
            root.queue.removed(node)
            self._watches.shorten(node, parent)
            if node.ref_count:
                self._forest.dead[node] = None
            else:
                freed.append(node.page_bytes)
        root.queue.push(parent)
        self._forest.prune(parent)
        return freed

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
        first = node = self._unlock_dead(node)
        num_bytes = 0
        while node.parent is not None:
            node.ref_count -= 1
            if node.ref_count == 0:
                num_bytes += len(node.token_bytes)
            node = node.parent
        self._move_to_protected(-num_bytes // TOKEN_BYTES)
        assert isinstance(node, RadixRoot), f"{first}, or a node above it, was evicted while it was locked"
        node.queue.push(first)

    def _unlock_dead(self, node: RadixNode) -> RadixNode:
        """Give up one lock on `node` and those above it as far as they are dead; the first that is not.

        A dead node goes with its last reader.
        """
        while node.dead:
            assert node.parent is not None, f"{node} was forgotten while it was locked"
            parent = node.parent
            node.ref_count -= 1
            if node.ref_count == 0:
                self._reclaimable.append(node.page_bytes)
                self._protected_size -= node.length
                del self._forest.dead[node]
                node.parent = None
            node = parent
        return node

    def _move_to_protected(self, num_tokens: int) -> None:
        self._evictable_size -= num_tokens
        self._protected_size += num_tokens
