"""What can be seen of a prefix cache: its trees, folded to what fits a page, and who uses one node."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from minisgl.utils.arrays import Int32Array

COLUMNS = (
    "parent",
    "tokens",
    "subtree_tokens",
    "subtree_nodes",
    "locks",
    "age",
    "namespace",
    "folded",
    "folded_tokens",
)
MAX_PICTURE_NODES = 5000  # more, and Python looks for cycles among them in the midst of a step, for 10 ms and longer


class TreePicture(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The trees of all namespaces, or what is below one node. Legend: N nodes that are in it.

    clock: calls of match and insert until now. num_nodes, num_tokens: of all that was walked, shown or not, namespaces'
    roots not counted. num_namespaces: the same of roots. above: ids on the way to the first node, from the root on.
    ids: [N], parents before children, siblings by subtree_tokens, largest first. The first one is the node that was
    asked for, or the public root.
    rows: [N * len(COLUMNS)], node by node. parent: its index in `ids`; -1: none. tokens: of the node alone.
    subtree_tokens, subtree_nodes: of it and all below. locks: on it or below it. age: clock - last visit. namespace:
    0 is the public one. folded: children that are not in `ids`, and folded_tokens, of their subtrees.
    head_lens: [N], and heads, one after the other: the first token ids of each node, if they were asked for.
    salts: of the roots in `ids`, in their order, if token ids were asked for.
    """

    clock: int
    page_size: int
    num_nodes: int
    num_tokens: int
    num_namespaces: int
    above: list[int]
    ids: list[int]
    rows: Int32Array
    head_lens: Int32Array
    heads: Int32Array
    salts: list[str]

    def columns(self) -> dict[str, list[int]]:
        """[N] of each of COLUMNS."""
        table = np.reshape(self.rows, (-1, len(COLUMNS)))
        return {name: table[:, i].tolist() for i, name in enumerate(COLUMNS)}


class NodeUse(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One node, and who leads through it.

    path_tokens: from the root to its end. tokens, locks, age: as in a `TreePicture`. users: uids of running requests
    whose prefix it is a part of. waiting: of those that would hit some of it now, the first 512. tail: the last token
    ids of its path, if they were asked for. states: of the users.
    """

    path_tokens: int
    tokens: int
    locks: int
    age: int
    users: list[int]
    waiting: list[int]
    tail: Int32Array
    states: list[Literal["prefill", "decode"]] = []


class TreePath(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a prompt lies. ids: of the nodes on the way, from the root down. matched_tokens: that a request would find.

    The last node may be matched in part.
    """

    ids: list[int]
    matched_tokens: int
