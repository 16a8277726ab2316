"""The roots of the radix cache: a tree for each namespace, and what was purged but is still read."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from minisgl.kvcache.eviction import EvictionQueue, Turns
from minisgl.kvcache.radix_node import RadixNode
from minisgl.kvcache.types import PUBLIC, Namespace


class RadixRoot(RadixNode):
    """Holds nothing and is never evicted. queue: the order in which what is below it goes.

    number: how many namespaces there had been before it.
    """

    __slots__ = ("namespace", "number", "queue")

    def __init__(self, namespace: Namespace, number: int, queue: EvictionQueue) -> None:
        super().__init__(b"", b"", last_access=0, ref_count=1)
        self.namespace = namespace
        self.number = number
        self.queue = queue


class RadixForest:
    """A namespace has a root while it has nodes or is waited for; the public one always, so that an empty match has
    where to end.

    dead: purged nodes that somebody has locked.
    """

    def __init__(self, make_queue: Callable[[], EvictionQueue]) -> None:
        self._make_queue = make_queue
        self.public = RadixRoot(PUBLIC, 0, make_queue())
        self.dead: dict[RadixNode, None] = {}
        self._turns: Turns[RadixRoot] = Turns()  # knows nobody while the public namespace is alone
        self._roots: dict[Namespace, RadixRoot] = {PUBLIC: self.public}
        self._num_ever = 1

    def find(self, namespace: Namespace) -> RadixRoot | None:
        return self.public if namespace is PUBLIC else self._roots.get(namespace)

    def plant(self, namespace: Namespace) -> RadixRoot:
        """The root of `namespace`, which is about to get a node or a watch."""
        if namespace is PUBLIC:
            return self.public
        root = self._roots.get(namespace)
        if root is None:
            root = RadixRoot(namespace, self._num_ever, self._make_queue())
            self._num_ever += 1
            if len(self._roots) == 1:
                self._turns.add(self.public, self.public.queue)
            self._roots[namespace] = root
            self._turns.add(root, root.queue)
        return root

    def prune(self, node: RadixNode) -> None:
        """Forget `node` if it is a root that has lost its last child and its last watch."""
        if node.children or node.watchers or node is self.public or not isinstance(node, RadixRoot):
            return
        if self._roots.get(node.namespace) is not node:
            return
        del self._roots[node.namespace]
        self._turns.remove(node)
        if len(self._roots) == 1:
            self._turns.remove(self.public)

    def next_root(self) -> RadixRoot:
        """Whose leaf goes next. There must be an unlocked one."""
        if len(self._roots) == 1:
            return self.public
        root = self._turns.next()
        assert root is not None, "no leaf of any namespace is unlocked"
        return root

    def roots(self) -> list[RadixRoot]:
        return list(self._roots.values())

    def nodes(self) -> Iterator[RadixNode]:
        """Every node that can be matched, but the roots; parents before children."""
        return below(*self._roots.values())

    def check_integrity(self) -> None:
        for namespace, root in self._roots.items():
            assert root.namespace == namespace, f"{root} is filed under {namespace}"
            assert root.children or root.watchers or root is self.public, f"the empty namespace {namespace} was kept"
            root.queue.check_integrity(list(below(root)))
        for node in self.dead:
            assert node.dead, f"{node} was never purged"
            assert node.ref_count > 0, f"purged, locked by nobody and still there: {node}"


def below(*nodes: RadixNode) -> Iterator[RadixNode]:
    """Every node below these, parents before children."""
    stack = [child for node in nodes for child in node.children.values()]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(node.children.values())
