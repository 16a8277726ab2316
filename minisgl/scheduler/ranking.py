"""The order in which the radix tree would be walked depth first, heavier branches first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from minisgl.kvcache.radix_node import RadixNode
from minisgl.kvcache.watch import RadixWatch
from minisgl.scheduler.waiting import Waiting

UNRANKED = 1 << 62

Ends = dict[RadixNode | None, list[Waiting]]  # by the node in which the match ends; None: nothing is ever cached
Children = dict[RadixNode, list[RadixNode]]  # of the nodes on the way to the ends
Weight = tuple[int, int]  # minus the requests that wait for a branch, and the number of the oldest of them


def rank_depth_first(requests: Iterable[Waiting]) -> None:
    """Rank `requests`, given in order of age: the smallest rank runs first. A rank that is still in order stays.

    The weight of a node is how many of them match it or something below it. Those whose match ends in a node come
    after those that match further, and by age among themselves; equally heavy branches by their oldest request.
    Without a tree (nothing is ever cached) they keep the order of arrival.
    """
    ends: Ends = {}
    for waiting in requests:
        node = waiting.watch.node if isinstance(waiting.watch, RadixWatch) else None
        ends.setdefault(node, []).append(waiting)
    roots, children = _branches(ends)
    weights = _weigh(roots, children, ends)
    least = 0
    for waiting in _walk(roots, children, ends, weights):
        if waiting.rank < least or waiting.rank == UNRANKED:
            waiting.rank = least
        least = waiting.rank + 1


def _branches(ends: Ends) -> tuple[list[RadixNode], Children]:
    """The roots above `ends`, and who is below whom; each node is looked at once."""
    roots: list[RadixNode] = []
    children: Children = {}
    seen: set[RadixNode] = set()
    for end in ends:
        node = end
        while node is not None and node not in seen:
            seen.add(node)
            if node.parent is None:
                roots.append(node)
            else:
                children.setdefault(node.parent, []).append(node)
            node = node.parent
    return roots, children


def _weigh(roots: list[RadixNode], children: Children, ends: Ends) -> dict[RadixNode, Weight]:
    nodes = list(roots)
    for node in nodes:  # grows: parents before children
        nodes += children.get(node, ())
    weights: dict[RadixNode, Weight] = {}
    for node in reversed(nodes):
        own = ends.get(node, ())
        parts = [(-len(own), own[0].number)] if own else []
        parts += [weights[child] for child in children.get(node, ())]
        weights[node] = sum(part[0] for part in parts), min(part[1] for part in parts)
    return weights


def _walk(
    roots: list[RadixNode], children: Children, ends: Ends, weights: dict[RadixNode, Weight]
) -> Iterator[Waiting]:
    stack: list[RadixNode | list[Waiting]] = [ends.get(None, []), *roots]
    while stack:
        top = stack.pop()
        if isinstance(top, list):
            yield from top
        else:
            stack.append(ends.get(top, []))
            branches = sorted(children.get(top, ()), key=weights.__getitem__, reverse=True)
            stack += branches
