"""A walk through trees that change meanwhile: the largest subtrees, and how large what is below each of them is.

A node is known by where its path ends, in tokens. So a node that was split or absorbed since its parent was looked at
is still found, and no token is counted twice, whatever has happened: the answer is always a proper tree. It is exact if
nothing changes. Else each node is as it was when the walk came to it; what was inserted behind the walk is missing, and
what was evicted behind it is still there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush, heapreplace

from minisgl.kvcache.radix_node import TOKEN_BYTES, RadixNode
from minisgl.kvcache.radix_walk import path_len
from minisgl.kvcache.view import Slices

NODES_A_SLICE = 500  # about a millisecond


NOBODY: Iterator[RadixNode] = iter(())  # one for all: thousands of objects less for the search for cycles to look at


class Branch:
    """A node that the walk has come to, and what it has found below.

    end: of its path. length: tokens of its own: fewer than the node has where its parent, which it has absorbed since,
    is a branch already. tokens, nodes: of its subtree, itself included. pending: children to come. row: its place in
    the answer.
    """

    __slots__ = ("end", "head", "length", "node", "nodes", "num_children", "parent", "pending", "row", "tokens")

    def __init__(self, node: RadixNode, parent: Branch | None, end: int, length: int, head_len: int) -> None:
        self.node = node
        self.parent = parent
        self.end = end
        self.length = self.tokens = length
        self.nodes = 1
        self.num_children = 0
        self.pending: Iterator[RadixNode] = iter(list(node.children.values())) if node.children else NOBODY
        self.head = _head(node, length, head_len) if head_len else b""
        self.row = -1

    def add(self, tokens: int, nodes: int) -> None:
        """What was found of one child."""
        self.tokens += tokens
        self.nodes += nodes
        self.num_children += 1


class Largest:
    """The branches with the most tokens. A parent has more than its child, so with a branch come all above it.

    floor: a branch of fewer tokens is not among them, nor one of as many that has no child.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._branches: dict[int, Branch] = {}
        self._ranks: list[int] = []  # its keys, a heap; numbers, of which the search for cycles need not know
        self._num_offered = 0
        self.floor = -1 if capacity else sys.maxsize

    def offer(self, branch: Branch) -> None:
        """Of equal ones the earlier is kept. A root has no tokens, but one node more than its only child."""
        self._num_offered += 1
        rank = (branch.tokens << 64) + (branch.nodes << 32) - self._num_offered
        if len(self._ranks) < self._capacity:
            heappush(self._ranks, rank)
        elif self._capacity and rank > self._ranks[0]:
            del self._branches[heapreplace(self._ranks, rank)]
        else:
            return
        self._branches[rank] = branch
        if len(self._ranks) == self._capacity:
            self.floor = self._ranks[0] >> 64

    def take_smallest(self, limit: int) -> list[Branch]:
        """Up to `limit` of them, in order."""
        return [self._branches.pop(heappop(self._ranks)) for _ in range(min(limit, len(self._ranks)))]


class Totals:
    """Of all that was walked: nodes, roots and not, and tokens."""

    def __init__(self) -> None:
        self.nodes = self.roots = self.tokens = 0

    def add(self, top: Branch) -> None:
        self.nodes += top.nodes
        self.roots += not top.length
        self.tokens += top.tokens


def fold(tops: Sequence[RadixNode], max_nodes: int, head_len: int) -> Slices[tuple[Totals, list[Branch]]]:
    """Walk all below `tops`; how much that is, and the largest `max_nodes` branches; the last one is the first top.

    head_len: how many tokens of each branch are kept in `head`.
    """
    largest = Largest(max_nodes - 1)
    totals, first = yield from _walk(tops, largest, head_len)
    kept = largest.take_smallest(NODES_A_SLICE // 2)
    while smallest := largest.take_smallest(NODES_A_SLICE // 2):
        yield
        kept += smallest
    kept.append(first)
    return totals, kept


def _walk(tops: Sequence[RadixNode], largest: Largest, head_len: int) -> Slices[tuple[Totals, Branch]]:
    """All added up, and the branch of the first of `tops`. All others are offered to `largest`."""
    totals, first, left = Totals(), None, NODES_A_SLICE
    for top in tops:
        stack = [Branch(top, None, path_len(top), top.length, head_len)]
        first = first or stack[0]
        left -= 1
        while stack:
            branch = stack[-1]
            node, end = branch.node, branch.end
            for child in branch.pending:
                left -= 1
                if left <= 0:
                    left = NODES_A_SLICE
                    yield
                if child.parent is node and not child.dead:
                    length = len(child.token_bytes) // TOKEN_BYTES
                elif (found := _find_after(child, end)) is None:
                    continue
                else:
                    child, length = found
                if child.children:
                    stack.append(Branch(child, branch, end + length, length, head_len))
                    break
                branch.add(length, 1)
                if length > largest.floor:
                    largest.offer(Branch(child, branch, end + length, length, head_len))
            else:
                stack.pop()
                branch.pending = NOBODY
                if branch.parent is not None:
                    branch.parent.add(branch.tokens, branch.nodes)
                else:
                    totals.add(branch)
                if branch.tokens >= largest.floor and branch is not first:
                    largest.offer(branch)
    assert first is not None, "a walk that begins nowhere"
    return totals, first


def _head(node: RadixNode, length: int, head_len: int) -> bytes:
    """The first `head_len` of its last `length` tokens."""
    start = len(node.token_bytes) - length * TOKEN_BYTES
    return node.token_bytes[start : start + head_len * TOKEN_BYTES]


def _find_after(node: RadixNode, end: int) -> tuple[RadixNode, int] | None:
    """The node that holds the token at position `end` of the path to `node`, and how many of its tokens are from there.

    None if `node`, which began there once, is gone.
    """
    while node.dead and node.children:  # absorbed by its only child
        node = next(iter(node.children.values()))
    if node.dead:
        return None
    stop = path_len(node)
    while node.parent is not None and stop > end:
        start = stop - node.length
        if start <= end:
            return node, stop - end
        node, stop = node.parent, start
    return None
