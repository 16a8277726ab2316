"""The radix trees of all namespaces: walked, grown, locked and cut down, with their sizes and watches kept right.

Plain Python on `bytes`: a whole node is compared by one memcmp, and NumPy looks only at the node in which a match ends.
"""

from __future__ import annotations

from collections.abc import Callable

from minisgl.kvcache.eviction import EvictionQueue
from minisgl.kvcache.ghost import join_forks, split_forks
from minisgl.kvcache.ghost_list import GhostList
from minisgl.kvcache.purge import kill, nodes_to_purge
from minisgl.kvcache.radix_check import check_nodes, check_pages_held_once
from minisgl.kvcache.radix_forest import RadixForest, RadixRoot
from minisgl.kvcache.radix_handle import RadixCacheHandle
from minisgl.kvcache.radix_node import PAGE_BYTES, TOKEN_BYTES, RadixNode
from minisgl.kvcache.radix_walk import path_len
from minisgl.kvcache.slots import Tokens, join_pages, to_bytes
from minisgl.kvcache.types import SizeInfo
from minisgl.kvcache.watch import RadixWatch, WatchList
from minisgl.utils.arrays import Int32Array
from minisgl.utils.math import align_down

MAX_MERGED_BYTES = 16384  # of tokens, up to which a node absorbs its parent whatever their sizes
MAX_MERGED_RATIO = 4  # of parent to child, up to which longer ones are merged: so a token is copied O(log length) times


class RadixTree:
    """clock: walks until now; so a trace replays to the same evictions everywhere.

    evictable_size, protected_size: tokens of unlocked and of locked nodes. reclaimable: the pages of purged nodes
    whose last reader has left, as bytes. ghosts: None if nothing is remembered of what goes.
    """

    def __init__(
        self, page_size: int, make_queue: Callable[[], EvictionQueue], ghosts: GhostList | None = None
    ) -> None:
        self.page_size = page_size
        self.clock = 0
        self.evictable_size = 0
        self.protected_size = 0
        self.reclaimable: list[bytes] = []
        self.forest = RadixForest(make_queue)
        self.watches = WatchList(page_size)
        self.ghosts = ghosts
        self._page_bytes = page_size * TOKEN_BYTES

    def walk(self, root: RadixRoot, tokens: Tokens) -> tuple[RadixNode, int]:
        """Visit the nodes that `tokens` (of whole pages) lead to: the last one, and the bytes matched up to it.

        A node that matches in part is split. Its front half has the other half as its only child, which does not match,
        so the walk ends there. A node whose parent leads nowhere else any more absorbs it.
        """
        self.clock = clock = self.clock + 1
        page_bytes, num_bytes = self._page_bytes, len(tokens)
        head = tokens if type(tokens) is bytes else b""  # bytes are cut and compared in place; a view is cut first
        num_head_bytes = len(head)
        node: RadixNode = root
        start = 0
        while True:
            stop = start + page_bytes
            child = node.children.get(head[start:stop] if stop <= num_head_bytes else bytes(tokens[start:stop]))
            if child is None:
                return node, start
            key = child.token_bytes
            stop = start + len(key)
            if not (
                head.startswith(key, start)
                if stop <= num_head_bytes
                else stop <= num_bytes and key.startswith(tokens[start:stop])
            ):
                break
            child.last_access = clock
            if len(node.children) == 1 and node is not root:
                self._merge(root, node, child)
            node, start = child, stop
        matched = align_down(child.count_matching(tokens[start:stop]), self.page_size)
        front = self.split(child, matched, start // TOKEN_BYTES + matched)
        front.last_access = clock
        return front, start + matched * TOKEN_BYTES

    def split(self, node: RadixNode, pos: int, cached_len: int) -> RadixNode:
        """Split `node` after `pos` tokens; the front half, whose path is `cached_len` tokens long."""
        front = node.split_at(pos)
        if node.watchers is not None:
            self.watches.split(front, node, cached_len)
        if node.forks is not None:
            split_forks(front, node)
        return front

    def cut_at(self, watch: RadixWatch) -> None:
        """Split the node in which the match of an expected prompt ends, so that what comes after it may go sooner."""
        assert watch.node is not None, "expected, but watched no longer"
        self._cut(watch.node, watch.cached_len)

    def add_leaf(self, parent: RadixNode, tokens: Tokens, start: int, pages: Int32Array) -> RadixNode:
        """A node for `tokens` from byte `start` on, below `parent`, whose path ends there; not queued yet."""
        token_bytes = bytes(tokens[start:])
        page_bytes = bytes(to_bytes(pages[start // self._page_bytes :]))
        leaf = RadixNode(token_bytes, page_bytes, self.clock)
        first_page = token_bytes[: self._page_bytes]
        leaf.hang(parent, first_page)
        self.evictable_size += len(token_bytes) // TOKEN_BYTES
        if parent.watchers is not None:
            self.watches.inserted(parent, start // TOKEN_BYTES, first_page)
        if self.ghosts is not None:
            self.ghosts.inserted(parent, leaf, first_page)
        return leaf

    def evict(self, num_pages: int, trim: bool) -> Int32Array:
        """See `BasePrefixCache.evict_pages`."""
        freed: list[bytes] = []
        missing = num_pages
        while missing > 0:
            page_bytes = self._evict_leaf(self.forest.next_root(), missing if trim else self.evictable_size)
            freed.append(page_bytes)
            missing -= len(page_bytes) // PAGE_BYTES
        self.evictable_size -= (num_pages - missing) * self.page_size
        return join_pages(freed)

    def purge(self, root: RadixRoot, prefix: Tokens) -> list[bytes]:
        """Take out what begins with `prefix` (bytes of tokens) below `root`; the pages of which nobody has locked."""
        tops = nodes_to_purge(root, prefix, self.page_size)
        if not tops:
            return []
        killed, parent = kill(tops)
        freed = []
        for node in killed:
            root.queue.removed(node)
            self.watches.shorten(node, parent)
            if self.ghosts is not None:
                self.ghosts.forget_below(node)
            if node.ref_count:
                self.forest.dead[node] = None
            else:
                freed.append(node.page_bytes)
                self.evictable_size -= node.length
        if root.children:
            root.queue.push(parent)
        else:
            root.queue.clear()  # what it still has of the dead would keep their memory
        self.forest.prune(parent)
        return freed

    def lock(self, handle: RadixCacheHandle) -> None:
        if handle.node.dead and handle.was_absorbed:
            handle.node = self._cut(handle.find_end()[0], handle.cached_len)
        first = node = handle.node
        num_moved = 0
        while (parent := node.parent) is not None:
            num_locks = node.ref_count
            if num_locks == 0:
                num_moved += len(node.token_bytes)
            node.ref_count = num_locks + 1
            node = parent
        assert isinstance(node, RadixRoot), f"{first}, or a node above it, was evicted before it was locked"
        if num_moved:
            num_tokens = num_moved // TOKEN_BYTES
            self.evictable_size -= num_tokens
            self.protected_size += num_tokens

    def unlock(self, node: RadixNode) -> None:
        assert node.ref_count > 0, f"{node} is unlocked more often than it was locked"
        first = node = self._unlock_dead(node) if node.dead else node
        num_moved = 0
        while (parent := node.parent) is not None:
            node.ref_count = num_locks = node.ref_count - 1
            if num_locks == 0:
                num_moved += len(node.token_bytes)
            node = parent
        assert isinstance(node, RadixRoot), f"{first}, or a node above it, was evicted while it was locked"
        if num_moved:
            num_tokens = num_moved // TOKEN_BYTES
            self.evictable_size += num_tokens
            self.protected_size -= num_tokens
            node.queue.push(first)

    def check_integrity(self) -> None:
        self.forest.check_integrity()
        nodes, dead = list(self.forest.nodes()), list(self.forest.dead)
        check_nodes(self.forest.roots(), nodes, dead, self.page_size, self.clock)
        check_pages_held_once(self.cached_pages())
        self.watches.check_integrity([*self.forest.roots(), *nodes])
        if self.ghosts is not None:
            self.ghosts.check_integrity(nodes, self.forest.roots())
        unlocked = sum(node.length for node in nodes if node.ref_count == 0)
        locked = sum(node.length for node in (*nodes, *dead) if node.ref_count)
        counted, kept = SizeInfo(unlocked, locked), SizeInfo(self.evictable_size, self.protected_size)
        assert counted == kept, f"sizes drifted: the tree has {counted}, the counters say {kept}"

    def cached_pages(self) -> Int32Array:
        held = [node.page_bytes for node in (*self.forest.nodes(), *self.forest.dead)]
        return join_pages(held + self.reclaimable)

    def _merge(self, root: RadixRoot, parent: RadixNode, child: RadixNode) -> None:
        """Have `child` absorb `parent`, which it was just visited through and whose only child it is.

        Only where nothing tells the two apart: then the leaf goes first, and its parent next, merged or not.
        """
        length, child_length = len(parent.token_bytes), len(child.token_bytes)
        if (
            parent.ref_count == child.ref_count
            and parent.note == child.note
            and parent.watchers is None
            and (length + child_length <= MAX_MERGED_BYTES or length <= MAX_MERGED_RATIO * child_length)
        ):
            root.queue.absorbed(parent)
            child.absorb_parent()
            if parent.forks is not None or child.forks is not None:
                join_forks(parent, child, length)

    def _evict_leaf(self, root: RadixRoot, max_pages: int) -> bytes:
        """Evict what goes next in this namespace, of it at most `max_pages` from its end; their numbers as bytes."""
        queue = root.queue
        leaf = queue.first()
        assert leaf is not None, f"no leaf of {root.namespace} is unlocked"
        num_pages = len(leaf.page_bytes) // PAGE_BYTES
        is_trimmed = num_pages > max_pages
        if not is_trimmed:
            queue.take(leaf)
        if queue.takes_notes:
            queue.evicting(leaf, min(num_pages, max_pages) * self.page_size)
        if is_trimmed:
            return self._trim(leaf, max_pages)
        parent = leaf.detach()
        if self.ghosts is not None:
            self.ghosts.evicted(parent, leaf)
        if leaf.watchers is not None:
            self.watches.shorten(leaf, parent)
        if not parent.children:
            queue.push(parent)
            self.forest.prune(parent)
        return leaf.page_bytes

    def _trim(self, leaf: RadixNode, num_pages: int) -> bytes:
        token_bytes = leaf.token_bytes
        freed = leaf.trim(num_pages)
        self.watches.shorten(leaf, leaf)
        if self.ghosts is not None:
            self.ghosts.trimmed(leaf, token_bytes[len(leaf.token_bytes) :])
        return freed

    def _cut(self, node: RadixNode, cached_len: int) -> RadixNode:
        """Have a node end after `cached_len` tokens of the path to `node`, which reach into it; that node."""
        num_beyond = path_len(node) - cached_len
        return self.split(node, node.length - num_beyond, cached_len) if num_beyond else node

    def _unlock_dead(self, node: RadixNode) -> RadixNode:
        """Give up one lock on `node` and those above it as far as they are dead; the first that is not.

        A dead node goes with its last reader.
        """
        while node.dead:
            assert node.parent is not None, f"{node} was forgotten while it was locked"
            parent = node.parent
            node.ref_count -= 1
            if node.ref_count == 0:
                self.reclaimable.append(node.page_bytes)
                self.protected_size -= node.length
                del self.forest.dead[node]
                node.parent = None
            node = parent
        return node
