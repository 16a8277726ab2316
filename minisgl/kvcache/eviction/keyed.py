"""Policies that are one key: the unlocked leaf whose key is smallest goes first."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from minisgl.kvcache.eviction.queue import EvictionQueue
from minisgl.kvcache.eviction.sparing import SparingHeap
from minisgl.kvcache.radix_node import RadixNode


class KeyedQueue(EvictionQueue):
    """Unlocked leaves by a key, which grows with visits, or else the policy files a node again after a visit."""

    def __init__(self, key: Callable[[RadixNode], int]) -> None:
        """key: smaller goes first. No two unlocked leaves of a namespace have the same."""
        self._key = key
        self._heap = SparingHeap(1, key)

    def push(self, node: RadixNode) -> None:
        if not (node.queued or node.ref_count or node.children):
            self._heap.file(node)

    def first(self) -> RadixNode | None:
        return self._heap.first_unexpected() or self._heap.first()

    def pop(self) -> RadixNode:
        node = self.first()
        assert node is not None, "no unlocked leaf is queued for eviction"
        self._heap.take(node)
        return node

    def order_key(self) -> int | None:
        node = self._heap.first()
        return None if node is None else self._key(node)

    def unexpected(self, node: RadixNode) -> None:
        self._heap.unexpected(node)

    def removed(self, node: RadixNode) -> None:
        node.queued = 0

    def absorbed(self, node: RadixNode) -> None:
        node.queued = 0

    def clear(self) -> None:
        self._heap.clear()

    def check_integrity(self, nodes: Iterable[RadixNode]) -> None:
        nodes = list(nodes)
        self._heap.check_integrity(nodes)
        unfiled = [node for node in nodes if node.evictable and not node.queued]
        assert not unfiled, f"unlocked leaves that are not queued for eviction: {unfiled}"
