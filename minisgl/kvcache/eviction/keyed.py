"""Policies that are one key: the unlocked leaf whose key is smallest goes first."""

from __future__ import annotations

from collections.abc import Sequence

from minisgl.kvcache.eviction.queue import EvictionQueue, check_all_filed
from minisgl.kvcache.eviction.sparing import SparingHeap
from minisgl.kvcache.radix_node import RadixNode

# The clock's share of a key that begins with something else: enough for nine years of a million a second.
TIME_BITS = 48


class KeyedQueue(SparingHeap, EvictionQueue):
    """Unlocked leaves by a key that only grows while the node lives, or whose node the policy files again."""

    def push(self, node: RadixNode) -> None:
        if not (node.queued or node.ref_count or node.children):
            self._heap.file(node)
            if self.on_change is not None:
                self.on_change()

    def expected_later(self, node: RadixNode) -> None:
        super().expected_later(node)
        self._changed()

    def take(self, leaf: RadixNode) -> None:
        self.pass_on(self.take_out(leaf))

    def order_key(self) -> int | None:
        return self.first_place()

    def check_integrity(self, nodes: Sequence[RadixNode]) -> None:
        super().check_integrity(nodes)
        check_all_filed(nodes)
