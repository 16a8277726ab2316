"""Numbers by which people name nodes that they were shown."""

from __future__ import annotations

from weakref import WeakKeyDictionary, WeakValueDictionary

from minisgl.kvcache.radix_node import RadixNode


class NodeIds:
    """A node gets its number when it is first shown, and keeps it as long as it is there. Keeps no node alive."""

    def __init__(self) -> None:
        self._ids: WeakKeyDictionary[RadixNode, int] = WeakKeyDictionary()
        self._nodes: WeakValueDictionary[int, RadixNode] = WeakValueDictionary()
        self._last = 0

    def __len__(self) -> int:
        return len(self._ids)

    def of(self, node: RadixNode) -> int:
        number = self._ids.get(node)
        if number is None:
            self._last = number = self._last + 1
            self._ids[node] = number
            self._nodes[number] = node
        return number

    def find(self, number: int) -> RadixNode | None:
        """None if there is no such node, or not any more: it was evicted, purged, or is a part of a longer one."""
        node = self._nodes.get(number)
        return node if node is not None and is_there(node) else None


def is_there(node: RadixNode) -> bool:
    """Whether it can still be matched; a root can."""
    return not node.dead and (node.parent is not None or not node.token_bytes)
