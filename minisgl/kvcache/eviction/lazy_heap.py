"""Unlocked leaves by a key that is looked at again when they come up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from minisgl.kvcache.radix_node import RadixNode

_FEW = 64  # entries that are not worth a sweep, and that tell of many whether these are
_SWEPT_AT_ONCE = 4


class LazyHeap:
    """The leaf with the smallest key first; filing or taking one out costs O(log leaves).

    number: not 0, and no other's among the heaps of a queue; `node.queued` says which of them has the node's entry.
    key: of a node; no two unlocked leaves of a namespace have the same. It may grow while the node is filed: an entry
    whose key is not the node's any more is filed again when it comes up. So an entry is never later than its node,
    and the first entry that is true is the smallest. A node whose key becomes smaller must be filed again at once.
    The price of free visits: an eviction files again what was visited since, as far as it comes up, a microsecond each.
    set_aside: what is done with an expected leaf that comes up instead of keeping it here; None: it is kept.

    An entry is left behind where its node is filed elsewhere, gone, or no unlocked leaf any more. It is dropped when it
    comes up. Whenever there are twice as many entries as before, a sample tells whether a quarter of them is such; then
    all of these are swept out, a few with each node that is filed, for a look at a million at once would be a pause.
    """

    def __init__(
        self,
        number: int,
        key: Callable[[RadixNode], int],
        set_aside: Callable[[RadixNode], None] | None = None,
    ) -> None:
        self._number = number
        self._key = key
        self._set_aside = set_aside
        self._keys: list[int] = []
        self._unswept: list[int] = []  # a heap too: the keys from before the sweep that is going on
        self._nodes: dict[int, RadixNode] = {}  # by the keys of both
        self._sweep_above = _FEW

    def file(self, node: RadixNode) -> None:
        """Enter `node`, an unlocked leaf, by its key; what other heaps have of it is left behind."""
        self._enter(node)
        if self._unswept:
            self._sweep_on()
        elif len(self._keys) > self._sweep_above:
            if self._has_many_left_behind():
                self._keys, self._unswept = self._unswept, self._keys
            else:
                self._sweep_above = 2 * len(self._keys)

    def first(self) -> RadixNode | None:
        """The leaf with the smallest key, which stays where it is; None if there is none."""
        while keys := self._first_keys() if self._unswept else self._keys:
            key = keys[0]
            node = self._nodes[key]
            if self._is_true(key, node):
                return node
            heappop(keys)
            del self._nodes[key]
            self._settle(node)
        return None

    def take_first(self) -> None:
        """Take out what `first` has just shown."""
        keys = self._first_keys() if self._unswept else self._keys
        self._nodes.pop(heappop(keys)).queued = 0

    def clear(self) -> None:
        for node in self._nodes.values():
            if node.queued == self._number:
                node.queued = 0
        self._keys.clear()
        self._unswept.clear()
        self._nodes.clear()

    def check_integrity(self, nodes: Iterable[RadixNode]) -> None:
        """AssertionError if one of `nodes` says that it is filed here and is not, or is filed later than its key."""
        keys = sorted(self._keys + self._unswept)
        assert keys == sorted(self._nodes), "the keys of an eviction heap are not those of its nodes"
        entries: dict[RadixNode, int] = {}
        for key in sorted(self._nodes):
            entries.setdefault(self._nodes[key], key)
        for node in nodes:
            entry = entries.pop(node, None)
            if node.queued == self._number:
                assert entry is not None, f"{node}: queued={node.queued}, but that heap has no entry for it"
                assert not node.evictable or entry <= self._key(node), (
                    f"{node}: filed at {entry}, later than its key {self._key(node)}"
                )
        gone = [node for node in entries if node.queued == self._number]
        assert not gone, f"queued for eviction, but not in the tree: {gone}"

    def _enter(self, node: RadixNode) -> None:
        key = self._key(node)
        other = self._nodes.get(key)
        if other is None:
            heappush(self._keys, key)
        else:
            assert other is node or other.queued != self._number, f"{node} and {other} are leaves of the same key {key}"
        self._nodes[key] = node
        node.queued = self._number

    def _first_keys(self) -> list[int]:
        """While there is something unswept: the heap that has the smallest key."""
        keys, unswept = self._keys, self._unswept
        return unswept if not keys or unswept[0] < keys[0] else keys

    def _is_true(self, key: int, node: RadixNode) -> bool:
        return (
            self._key(node) == key
            and node.queued == self._number
            and not (node.ref_count or node.children)
            and (not node.expected or self._set_aside is None)
        )

    def _settle(self, node: RadixNode) -> None:
        """An entry of `node` is untrue and taken off: file the node where it belongs, if anywhere."""
        if node.queued != self._number:
            return
        if not node.evictable:
            node.queued = 0
        elif node.expected and self._set_aside is not None:
            self._set_aside(node)
        elif self._nodes.get(self._key(node)) is not node:
            self._enter(node)

    def _has_many_left_behind(self) -> bool:
        sample = self._keys[:: len(self._keys) // _FEW + 1]
        return 4 * sum(map(self._is_left_behind, sample)) >= len(sample)

    def _is_left_behind(self, key: int) -> bool:
        node = self._nodes[key]
        if node.queued != self._number or not node.evictable:
            return True
        now = self._key(node)
        return now != key and self._nodes.get(now) is node

    def _sweep_on(self) -> None:
        """Drop a few entries or file them by today's keys, from the end of the list: what is left is still a heap."""
        for _ in range(min(_SWEPT_AT_ONCE, len(self._unswept))):
            self._settle(self._nodes.pop(self._unswept.pop()))
        if not self._unswept:
            self._sweep_above = 2 * max(_FEW, len(self._keys))
