"""The radix trees as people see them. Everything here only looks."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import cast

import numpy as np

from minisgl.core.picture import COLUMNS, NodeUse, TreePath, TreePicture
from minisgl.kvcache.folding import NODES_A_SLICE, Branch, fold
from minisgl.kvcache.node_ids import NodeIds, is_there
from minisgl.kvcache.radix_forest import RadixRoot
from minisgl.kvcache.radix_handle import RadixCacheHandle
from minisgl.kvcache.radix_node import TOKEN_BYTES, RadixNode
from minisgl.kvcache.radix_tree import RadixTree
from minisgl.kvcache.radix_walk import path_len, seek
from minisgl.kvcache.slots import INT32, to_bytes
from minisgl.kvcache.types import PUBLIC, BaseCacheHandle, Ids, Namespace, Watch
from minisgl.kvcache.view import CacheView, Slices
from minisgl.kvcache.watch import RadixWatch
from minisgl.utils.arrays import NO_IDS, Int32Array

NUM_COLUMNS = len(COLUMNS)
FOLDED, FOLDED_TOKENS, NAMESPACE = (COLUMNS.index(name) for name in ("folded", "folded_tokens", "namespace"))
ROWS_A_SLICE = NODES_A_SLICE // 4
MAX_WAITING = 512  # that are named
MAX_AGE = 2**31 - 1


class TreeView(CacheView):
    """Of radix trees."""

    def __init__(self, tree: RadixTree) -> None:
        self._tree = tree
        self._ids = NodeIds()

    def picture(self, number: int | None, max_nodes: int, head_len: int) -> Slices[TreePicture | None]:
        top = None if number is None else self._ids.find(number)
        if number is not None and top is None:
            return None
        tops = self._tree.forest.roots() if top is None else [top]
        path = _path_to(tops[0])
        totals, kept = yield from fold(tops, max_nodes, head_len)
        table = Table(cast(RadixRoot, path[0]).number)
        while kept:
            for branch in (kept.pop() for _ in range(min(ROWS_A_SLICE, len(kept)))):
                table.add(branch, self._ids.of(branch.node), self._tree.clock)
            if kept:
                yield
        return TreePicture(
            clock=self._tree.clock,
            page_size=self._tree.page_size,
            num_nodes=totals.nodes - totals.roots,
            num_tokens=totals.tokens,
            num_namespaces=totals.roots,
            above=[self._ids.of(node) for node in path[:-1]],
            ids=table.ids,
            rows=np.frombuffer(table.rows, INT32),
            head_lens=np.frombuffer(table.head_lens, INT32) if head_len else NO_IDS,
            heads=_int32(table.heads),
            salts=table.salts if head_len else [],
        )

    def use(
        self, number: int, handles: Mapping[int, BaseCacheHandle], watches: Mapping[int, Watch], tail_len: int
    ) -> Slices[NodeUse | None]:
        node = self._ids.find(number)
        if node is None:
            return None
        users = yield from _through(node, cast(Mapping[int, RadixCacheHandle], handles))
        waiting = yield from _through(node, cast(Mapping[int, RadixWatch], watches))
        if not is_there(node):
            return None
        is_root = isinstance(node, RadixRoot)
        return NodeUse(
            path_tokens=path_len(node),
            tokens=node.length,
            locks=0 if is_root else node.ref_count,
            age=0 if is_root else self._tree.clock - node.last_access,
            users=users,
            waiting=waiting[:MAX_WAITING],
            tail=_tail(node, tail_len),
        )

    def path(self, input_ids: Ids, namespace: Namespace = PUBLIC) -> TreePath:
        root = self._tree.forest.find(namespace)
        if root is None:
            return TreePath([], 0)
        node, matched = seek(root, to_bytes(input_ids), 0, self._tree.page_size)
        return TreePath([self._ids.of(each) for each in _path_to(node)], matched)


class Table:
    """The rows of a picture, while it is made. namespace: of what is below the first node, but for other roots."""

    def __init__(self, namespace: int) -> None:
        self.ids: list[int] = []
        self.rows = array("i")
        self.head_lens = array("i")
        self.heads = bytearray()
        self.salts: list[str] = []
        self._namespace = namespace

    def add(self, branch: Branch, number: int, clock: int) -> None:
        node, rows, parent, namespace = branch.node, self.rows, -1, self._namespace
        locks, age = node.ref_count, min(clock - node.last_access, MAX_AGE)
        if branch.parent is not None:
            parent = branch.parent.row
            at = parent * NUM_COLUMNS
            namespace = rows[at + NAMESPACE]
            rows[at + FOLDED] -= 1
            rows[at + FOLDED_TOKENS] -= branch.tokens
        elif isinstance(node, RadixRoot):
            locks, age, namespace = 0, 0, node.number
            self.salts.append(node.namespace.cache_salt)
        branch.row = len(self.ids)
        self.ids.append(number)
        below = branch.tokens - branch.length
        rows.extend(
            (parent, branch.length, branch.tokens, branch.nodes, locks, age, namespace, branch.num_children, below)
        )
        self.head_lens.append(len(branch.head) // TOKEN_BYTES)
        self.heads += branch.head


def _through(node: RadixNode, places: Mapping[int, RadixCacheHandle | RadixWatch]) -> Slices[list[int]]:
    """Those of `places` on the way to which `node` is."""
    start, left, found = path_len(node) - node.length, NODES_A_SLICE, []
    for uid, place in places.items():
        at = place.node if place.cached_len > start or not start else None
        while at is not None and at is not node:
            at, left = at.parent, left - 1
        if at is node:
            found.append(uid)
        left -= 1
        if left <= 0:
            left = NODES_A_SLICE
            yield
    return found


def _path_to(node: RadixNode) -> list[RadixNode]:
    """From the root down."""
    path = [node]
    while path[-1].parent is not None:
        path.append(path[-1].parent)
    path.reverse()
    return path


def _tail(node: RadixNode, length: int) -> Int32Array:
    """The last `length` tokens of the path to `node`, or all."""
    runs, missing, at = [], length * TOKEN_BYTES, node
    while at.parent is not None and missing > 0:
        runs.append(at.token_bytes[-missing:])
        missing -= len(runs[-1])
        at = at.parent
    runs.reverse()
    return _int32(b"".join(runs))


def _int32(data: bytes | bytearray) -> Int32Array:
    return np.frombuffer(data, INT32)
