"""arc: leaves seen once and leaves seen again, with shares that adapt to which of them is missed."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import ClassVar

from minisgl.kvcache.eviction.ghosts import Ghosts, PathHash
from minisgl.kvcache.eviction.queue import EvictionQueue, check_all_filed
from minisgl.kvcache.eviction.sparing import SparingHeap, needed_last
from minisgl.kvcache.radix_node import TOKEN_BYTES, RadixNode

_ONCE, _AGAIN = 0, 1


class ARCQueue(EvictionQueue):
    """Adaptive replacement cache, Megiddo and Modha, "ARC: a self-tuning, low overhead replacement cache", FAST 2003.

    A node's note says in which of the paper's lists its pages are: T1, seen once, or T2, matched since they were
    inserted or back after an eviction. LRU in each. The leaf goes from T1 while T1 has more tokens than its target.
    The tokens evicted last are remembered (B1 and B2): when some of B1 come back, T1 went too early and its target
    grows by their number, times |B2| / |B1| if that is more than 1; when some of B2 come back, it shrinks likewise.

    What differs from the paper, because pages come in runs, and go before it is known which come in: sizes are counted
    in tokens, of locked and inner nodes too; the cache's size c is what this namespace has cached, as it is all that
    can be known; a leaf goes to T2 if at least half of it was remembered; and the choice between the lists does not
    look at what is about to come in. The bounds are the paper's: |T1| + |B1| <= c, all four lists <= 2c.

    Each insertion of a leaf and each eviction hashes the path's tokens (1 ms a million). All that was learnt goes when
    a purge takes the last node of the namespace, or the namespace is forgotten.
    """

    takes_notes: ClassVar[bool] = True

    def __init__(self) -> None:
        key = attrgetter("last_access")
        self._lists = (SparingHeap(key, number=1), SparingHeap(key, number=3))
        self._ghosts = (Ghosts(), Ghosts())
        self._sizes = [0, 0]
        self._target = 0  # tokens that T1 should have

    def push(self, node: RadixNode) -> None:
        if not (node.queued or node.ref_count or node.children):
            self._lists[node.note].file(node)
            self._changed()

    def first(self) -> RadixNode | None:
        lists = self._in_turn()
        unexpected = lists[0].first_unexpected() or lists[1].first_unexpected()
        if unexpected is not None:
            return unexpected
        expected = (node for leaves in lists if (node := leaves.first()) is not None)
        return min(expected, key=needed_last, default=None)

    def take(self, leaf: RadixNode) -> None:
        gives = next(leaves for leaves in self._in_turn() if leaves.first_place() is not None)
        gives.pass_on(self._lists[leaf.note].take_out(leaf))

    def order_key(self) -> int | None:
        """When the leaf that would go next was visited last."""
        for leaves in self._in_turn():
            if (place := leaves.first_place()) is not None:
                return place
        return None

    def expected_later(self, node: RadixNode) -> None:
        self._lists[node.note].expected_later(node)
        self._changed()

    def matched(self, node: RadixNode) -> None:
        while node.parent is not None:
            if node.note == _ONCE:
                self._see_again(node)
            node = node.parent
        self._changed()

    def inserted(self, node: RadixNode, is_new: bool, priority: int) -> None:
        if is_new:
            node.note = _AGAIN if 2 * self._recall(node) >= node.length else _ONCE
            self._sizes[node.note] += node.length
            self._changed()

    def evicting(self, leaf: RadixNode, num_tokens: int) -> None:
        assert leaf.parent is not None, "a leaf has a parent"
        cut = len(leaf.token_bytes) - num_tokens * TOKEN_BYTES
        path, page_bytes = PathHash(leaf.parent), leaf.page_size * TOKEN_BYTES
        path.lead_on(leaf.token_bytes[:cut])
        tail, before = leaf.token_bytes[cut:], path.digest()
        self._ghosts[1 - leaf.note].forget(before, tail[:page_bytes])
        self._ghosts[leaf.note].remember(before, page_bytes, tail)
        size = sum(self._sizes)
        self._sizes[leaf.note] -= num_tokens
        self._ghosts[_ONCE].shrink(size - self._sizes[_ONCE])
        self._ghosts[_AGAIN].shrink(2 * size - sum(self._sizes) - self._ghosts[_ONCE].num_tokens)
        self._changed()

    def removed(self, node: RadixNode) -> None:
        super().removed(node)
        self._sizes[node.note] -= node.length
        self._changed()

    def clear(self) -> None:
        for leaves in self._lists:
            leaves.clear()
        self._ghosts = (Ghosts(), Ghosts())
        self._sizes = [0, 0]
        self._target = 0

    def check_integrity(self, nodes: Sequence[RadixNode]) -> None:
        for leaves, ghosts in zip(self._lists, self._ghosts, strict=True):
            leaves.check_integrity(nodes)
            ghosts.check_integrity()
        check_all_filed(nodes)
        counted = [sum(node.length for node in nodes if node.note == note) for note in (_ONCE, _AGAIN)]
        assert counted == self._sizes, f"{counted} tokens were seen once and again, counted as {self._sizes}"

    def _in_turn(self) -> tuple[SparingHeap, SparingHeap]:
        """The list whose turn it is to give a leaf, then the other one."""
        once, again = self._lists
        return (once, again) if self._sizes[_ONCE] > self._target else (again, once)

    def _see_again(self, node: RadixNode) -> None:
        node.note = _AGAIN
        self._sizes[_ONCE] -= node.length
        self._sizes[_AGAIN] += node.length
        node.queued = 0
        self.push(node)

    def _recall(self, leaf: RadixNode) -> int:
        """How many tokens at the start of this new leaf were remembered; each moves the target."""
        assert leaf.parent is not None, "a new leaf has a parent"
        path, rest, page_bytes = PathHash(leaf.parent), leaf.token_bytes, leaf.page_size * TOKEN_BYTES
        size = sum(self._sizes) + leaf.length
        while rest:
            once, again = (ghosts.num_tokens for ghosts in self._ghosts)
            if num_bytes := self._ghosts[_ONCE].recall(path, page_bytes, rest):
                growth = num_bytes // TOKEN_BYTES * max(once, again) // once
                self._target = min(size, self._target + growth)
            elif num_bytes := self._ghosts[_AGAIN].recall(path, page_bytes, rest):
                growth = num_bytes // TOKEN_BYTES * max(once, again) // again
                self._target = max(0, self._target - growth)
            else:
                break
            rest = rest[num_bytes:]
        return leaf.length - len(rest) // TOKEN_BYTES
