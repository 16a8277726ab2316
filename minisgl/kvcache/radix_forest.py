"""The roots of the radix cache: a tree for each namespace, and what is left of the trees from before a flush."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from minisgl.kvcache.base import PUBLIC, Namespace
from minisgl.kvcache.radix_node import RadixNode


class RadixRoot(RadixNode):
    """Holds nothing and is never evicted. epoch: the forest's when it was made; a flush begins another one."""

    __slots__ = ("epoch", "namespace")

    def __init__(self, namespace: Namespace, epoch: int) -> None:
        super().__init__(b"", np.empty(0, np.int32), last_access=0, ref_count=1)
        self.namespace = namespace
        self.epoch = epoch


class RadixForest:
    """A namespace has a root while it has nodes; the public one always, so that an empty match has where to end."""

    def __init__(self) -> None:
        self.epoch = 0
        self.public = RadixRoot(PUBLIC, epoch=0)
        self._roots: dict[Namespace, RadixRoot] = {PUBLIC: self.public}
        self._flushed: dict[RadixRoot, None] = {}  # whose nodes are all locked

    def find(self, namespace: Namespace) -> RadixRoot | None:
        return self._roots.get(namespace)

    def plant(self, namespace: Namespace) -> RadixRoot:
        """The root of `namespace`, which is about to get a node."""
        root = self._roots.get(namespace)
        if root is None:
            root = self._roots[namespace] = RadixRoot(namespace, self.epoch)
        return root

    def prune(self, node: RadixNode) -> None:
        """Forget `node` if it is a root that has lost its last child."""
        if node.children or node is self.public or not isinstance(node, RadixRoot):
            return
        if node.epoch == self.epoch:
            del self._roots[node.namespace]
        else:
            self._flushed.pop(node, None)

    def flush(self) -> None:
        """Begin an epoch without any node. Nodes of earlier ones stay known until they are taken off."""
        self._flushed.update((root, None) for root in self._roots.values() if root.children)
        self.epoch += 1
        self.public = RadixRoot(PUBLIC, self.epoch)
        self._roots = {PUBLIC: self.public}

    def roots(self) -> list[RadixRoot]:
        """Those of this epoch first."""
        return [*self._roots.values(), *self._flushed]

    def nodes(self) -> Iterator[RadixNode]:
        """Every node but the roots, parents before children."""
        stack: list[RadixNode] = [child for root in self.roots() for child in root.children.values()]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    def check_integrity(self) -> None:
        for namespace, root in self._roots.items():
            assert (root.namespace, root.epoch) == (namespace, self.epoch), f"{root} is filed under {namespace}"
            assert root.children or root is self.public, f"the empty namespace {namespace} was kept"
        for root in self._flushed:
            assert root.epoch < self.epoch, f"{root} of epoch {root.epoch} was never flushed"
            assert root.children, f"an empty tree of epoch {root.epoch} was kept"
            unlocked = [node for node in root.children.values() if node.ref_count == 0]
            assert not unlocked, f"flushed, locked by nobody and still there: {unlocked}"
