"""The order in which the radix tree would be walked depth first, heavier branches first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from minisgl.kvcache.radix_node import RadixNode
from minisgl.kvcache.watch import RadixWatch
from minisgl.scheduler.waiting import Waiting

UNRANKED = 1 << 62

Path = list[RadixNode]  # from the root down
BranchKey = tuple[int, int]  # minus the requests that wait in a branch, and the number of the oldest of them


def rank_depth_first(requests: list[Waiting]) -> None:
    """Set the ranks of `requests` to 0, 1, ...

    The weight of a node is how many of them match it or something below it. Those whose match ends in a node come
    after those that match further, and by age among themselves; equally heavy branches by their oldest request.
    Without a tree (nothing is ever cached) they keep the order of arrival.
    """
    paths = {waiting: _path(waiting) for waiting in requests}
    branches = _branch_keys(paths.items())
    ends: BranchKey = (1, 0)  # after every branch
    keys = {waiting: [*(branches[node] for node in path), ends] for waiting, path in paths.items()}
    for rank, waiting in enumerate(sorted(requests, key=lambda waiting: (keys[waiting], waiting.number))):
        waiting.rank = rank


def _path(waiting: Waiting) -> Path:
    watch = waiting.watch
    node = watch.node if isinstance(watch, RadixWatch) else None
    path: Path = []
    while node is not None and node.parent is not None:
        path.append(node)
        node = node.parent
    return path[::-1]


def _branch_keys(paths: Iterable[tuple[Waiting, Path]]) -> dict[RadixNode, BranchKey]:
    weights: Counter[RadixNode] = Counter()
    oldest: dict[RadixNode, int] = {}
    for waiting, path in paths:
        weights.update(path)
        for node in path:
            oldest[node] = min(waiting.number, oldest.get(node, waiting.number))
    return {node: (-weight, oldest[node]) for node, weight in weights.items()}
