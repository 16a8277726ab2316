"""The radix cache: every prefix whose KV was computed stays reusable, in a tree over token ids, until it is evicted.

Source: RadixAttention, arXiv:2312.07104 sec. 3. Here is what comes in and goes out; the trees are in `radix_tree`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, cast

import numpy as np
import torch

from minisgl.core import Explanation, PrefixGroup
from minisgl.kvcache.base import BasePrefixCache
from minisgl.kvcache.eviction import EVICTION_POLICIES
from minisgl.kvcache.explain import Explainer
from minisgl.kvcache.ghost_list import GhostList
from minisgl.kvcache.radix_handle import RadixCacheHandle
from minisgl.kvcache.radix_node import TOKEN_BYTES, RadixNode
from minisgl.kvcache.radix_sharing import find_groups
from minisgl.kvcache.radix_tree import RadixTree
from minisgl.kvcache.radix_walk import seek
from minisgl.kvcache.slots import Tokens, join_pages, pages_to_slots, slots_to_pages, to_bytes, to_int32, to_view
from minisgl.kvcache.tree_view import TreeView
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
from minisgl.kvcache.watch import RadixWatch
from minisgl.utils.arrays import NO_IDS, Int32Array
from minisgl.utils.math import div_ceil


class RadixPrefixCache(BasePrefixCache):
    """A radix tree of cached prefixes for each namespace, evicted leaf by leaf in the order of a policy.

    The clock counts calls of match and insert, so a trace replays to the same evictions everywhere.
    """

    shares: ClassVar[bool] = True

    def __init__(
        self,
        device: torch.device,
        page_size: int | None = None,
        eviction: str = DEFAULT_EVICTION,
        ghost_tokens: int | None = None,
    ) -> None:
        super().__init__(device, page_size)
        self._page_bytes = self.page_size * TOKEN_BYTES
        ghosts = GhostList(self.page_size, ghost_tokens) if ghost_tokens is not None else None
        self._tree = RadixTree(self.page_size, EVICTION_POLICIES[eviction], ghosts)
        self._explainer = Explainer(self._tree.forest, ghosts, self.page_size) if ghosts is not None else None
        self.view = TreeView(self._tree)

    @property
    def root_node(self) -> RadixNode:
        """The root of the public namespace."""
        return self._tree.forest.public

    @property
    def size_info(self) -> SizeInfo:
        return SizeInfo(self._tree.evictable_size, self._tree.protected_size)

    def match_prefix(self, input_ids: Ids, namespace: Namespace = PUBLIC) -> MatchResult:
        """Longest prefix of `input_ids` that is cached in `namespace`, in whole pages.

        input_ids: [T] int32 on the host. The handle's cached_len is in tokens, a multiple of page_size, maybe 0.
        Refreshes the nodes on the way and splits the one in which the match ends, so that a lock pins exactly what
        was hit; sizes do not change. The slots stay valid only while the handle is locked.
        """
        tree = self._tree
        root = tree.forest.find(namespace)
        if root is None:
            root, input_ids = tree.forest.public, NO_IDS
        node, num_bytes = tree.walk(root, self._whole_pages(input_ids))
        if root.queue.takes_notes:
            root.queue.matched(node)
        return MatchResult(RadixCacheHandle(num_bytes // TOKEN_BYTES, node))

    def probe(self, input_ids: Ids, namespace: Namespace = PUBLIC) -> int:
        root = self._tree.forest.find(namespace)
        return 0 if root is None else seek(root, self._whole_pages(input_ids), 0, self.page_size)[1]

    def explain(
        self, input_ids: Ids, namespace: Namespace = PUBLIC, handle: BaseCacheHandle | None = None
    ) -> Explanation:
        if self._explainer is None:
            return Explanation(not_looked_up=len(input_ids))
        assert handle is None or isinstance(handle, RadixCacheHandle), f"not a handle of this cache: {handle}"
        if handle is None or handle.cached_len == 0:  # an empty match may end in another namespace
            node: RadixNode | None = self._tree.forest.find(namespace)
            return self._explainer.explain(to_bytes(input_ids), namespace, node, 0)
        return self._explainer.explain(to_bytes(input_ids), namespace, handle.node, handle.cached_len)

    def note_tail(self, handle: BaseCacheHandle, input_ids: Ids, namespace: Namespace = PUBLIC) -> None:
        assert isinstance(handle, RadixCacheHandle), f"not a handle of this cache: {handle}"
        if self._tree.ghosts is not None:
            self._tree.ghosts.tail(handle.node, namespace, bytes(to_bytes(input_ids)))

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
        tree, tokens = self._tree, self._whole_pages(input_ids)
        num_bytes = len(tokens)
        assert num_bytes == len(pages) * self._page_bytes, f"{len(input_ids)} tokens do not fill {len(pages)} pages"
        root = tree.forest.plant(namespace) if num_bytes else tree.forest.public
        node, num_matched = tree.walk(root, tokens)
        queue, is_new = root.queue, num_matched < num_bytes
        if is_new:
            node = tree.add_leaf(node, tokens, num_matched, pages)
        if queue.takes_notes:
            queue.inserted(node, is_new, priority)
        if is_new:
            queue.push(node)
        return InsertResult(num_matched // TOKEN_BYTES, RadixCacheHandle(num_bytes // TOKEN_BYTES, node))

    def lock_handle(self, handle: BaseCacheHandle, unlock: bool = False) -> None:
        """Keep the handle's path, from its node to the root, from eviction; or take one such lock back. Locks count."""
        assert isinstance(handle, RadixCacheHandle), f"not a handle of this cache: {handle}"
        if unlock:
            self._tree.unlock(handle.node)
        else:
            self._tree.lock(handle)

    def find_groups(self, handles: Sequence[BaseCacheHandle]) -> tuple[PrefixGroup, ...]:
        return find_groups([handle.node for handle in cast(Sequence[RadixCacheHandle], handles)])

    def evict_pages(self, num_pages: int, trim: bool = False) -> Int32Array:
        """Forget leaves in the policy's order until `num_pages` pages are free; the numbers of these pages.

        A parent may become the next leaf. AssertionError if too few are evictable.
        """
        evictable, wanted = self._tree.evictable_size, num_pages * self.page_size
        assert wanted <= evictable, (
            f"cannot evict {wanted} tokens: {evictable} evictable, {self._tree.protected_size} protected"
        )
        return self._tree.evict(num_pages, trim)

    def evict(self, size: int) -> torch.Tensor:
        return torch.from_numpy(pages_to_slots(self.evict_pages(div_ceil(size, self.page_size)), self.page_size))

    def purge(self, namespace: Namespace | None = None, prefix: Ids = NO_IDS) -> Int32Array:
        """Looks at every node that goes, and at no other, once."""
        forest, ghosts = self._tree.forest, self._tree.ghosts
        roots = forest.roots() if namespace is None else list(filter(None, [forest.find(namespace)]))
        start = to_bytes(prefix)
        if ghosts is not None:
            for name in {*ghosts.namespaces, *(root.namespace for root in roots)} if namespace is None else [namespace]:
                ghosts.forget(name, forest.find(name), start)
        return join_pages(pages for root in roots for pages in self._tree.purge(root, start))

    def reclaim(self) -> Int32Array:
        pages = join_pages(self._tree.reclaimable)
        self._tree.reclaimable.clear()
        return pages

    def watch(self, input_ids: Ids, namespace: Namespace = PUBLIC) -> Watch:
        view = to_view(input_ids)
        whole_pages = view[: len(view) - len(view) % self._page_bytes]
        return self._tree.watches.add(self._tree.forest.plant(namespace), whole_pages)

    def unwatch(self, watch: Watch) -> None:
        assert isinstance(watch, RadixWatch), f"not a watch of this cache: {watch}"
        self._tree.watches.remove(watch)
        self._tree.forest.prune(watch.root)

    def expect(self, watch: Watch, expected: bool, order: int | None = None) -> None:
        assert isinstance(watch, RadixWatch), f"not a watch of this cache: {watch}"
        self._tree.watches.expect(watch, expected, order)
        if expected:
            self._tree.cut_at(watch)

    def advance_watches(self, budget: int) -> list[Watch]:
        changed = self._tree.watches.advance(budget)
        for watch in changed:
            if watch.expected:
                self._tree.cut_at(watch)
        return list[Watch](changed)

    def cached_pages(self) -> Int32Array:
        return self._tree.cached_pages()

    def runs(self, head_len: int) -> Iterator[CachedRun]:
        stack = [(0, node) for root in reversed(self._tree.forest.roots()) for node in reversed(root.children.values())]
        while stack:
            depth, node = stack.pop()
            head = np.frombuffer(node.token_bytes[: head_len * TOKEN_BYTES], np.int32)
            yield CachedRun(depth, head, node.length, node.ref_count)
            stack += [(depth + 1, child) for child in reversed(node.children.values())]

    def reset(self) -> None:
        protected = self.size_info.protected_size
        assert protected == 0, f"cannot reset the cache: {protected} tokens are locked"
        self.flush()

    def check_integrity(self) -> None:
        self._tree.check_integrity()

    def _whole_pages(self, input_ids: Ids) -> Tokens:
        tokens = to_bytes(input_ids)
        partial = len(tokens) % self._page_bytes
        return tokens[:-partial] if partial else tokens
