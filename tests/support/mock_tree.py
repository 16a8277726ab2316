"""A made-up radix tree as /inspect/tree answers it, as large as one likes."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field
from typing import Any

WORDS = (
    "You are a helpful assistant. ",
    "Answer in short sentences ",
    "what the user asks ",
    "about radix trees ",
    "and caches. ",
)


@dataclass
class Node:
    id: int
    parent: int | None
    tokens: int
    namespace: int
    last_access: int
    locks: int = 0
    subtree_tokens: int = 0
    subtree_nodes: int = 0
    children: list[int] = field(default_factory=list)
    text: str = ""


class MockTree:
    """num_nodes: of all namespaces. Ids are positions; parents come before their children."""

    def __init__(self, num_nodes: int = 300, num_namespaces: int = 1, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self._num_namespaces = num_namespaces
        self.clock = num_nodes
        self.nodes = [Node(number, None, 0, number, 0) for number in range(num_namespaces)]
        while len(self.nodes) < num_nodes:
            self.add(self._parent())
        self.count()

    def add(self, parent: int, tokens: int | None = None) -> Node:
        """A new leaf. Its ancestors were used too."""
        above = self.nodes[parent]
        tokens = tokens or int(self._random.lognormvariate(4.2, 1.0)) + 1
        text = "".join(self._random.choices(WORDS, k=3))
        node = Node(len(self.nodes), parent, tokens, above.namespace, self.clock, text=text)
        self.nodes.append(node)
        above.children.append(node.id)
        self.touch(node.id)
        return node

    def touch(self, node: int) -> None:
        self.clock += 1
        for each in self.path(node):
            self.nodes[each].last_access = self.clock

    def path(self, node: int) -> list[int]:
        """From the root of its namespace down to it."""
        path = [node]
        while (parent := self.nodes[path[-1]].parent) is not None:
            path.append(parent)
        return path[::-1]

    def count(self) -> None:
        """What is below each node."""
        for node in self.nodes:
            node.subtree_tokens, node.subtree_nodes = node.tokens, 1
        for node in reversed(self.nodes):
            if node.parent is not None:
                self.nodes[node.parent].subtree_tokens += node.subtree_tokens
                self.nodes[node.parent].subtree_nodes += node.subtree_nodes

    def lock(self, nodes: list[int]) -> None:
        """These leaves and all above them are in use, and nothing else."""
        for node in self.nodes:
            node.locks = 0
        for leaf in nodes:
            for each in self.path(leaf):
                self.nodes[each].locks += 1

    def answer(self, max_nodes: int, node: int | None = None, with_text: bool = True) -> dict[str, Any]:
        """The largest nodes, parents before their children."""
        roots = [each.id for each in self.nodes if each.parent is None] if node is None else [node]
        heap = [(-self.nodes[each].subtree_tokens, each) for each in roots]
        heapq.heapify(heap)
        kept: list[int] = []
        while heap and len(kept) < max_nodes:
            _, number = heapq.heappop(heap)
            kept.append(number)
            for child in self.nodes[number].children:
                heapq.heappush(heap, (-self.nodes[child].subtree_tokens, child))
        listed = set(kept)
        shown = [self._shown(self.nodes[each], listed, with_text) for each in kept]
        real = [each for each in self.nodes if each.tokens]
        sizes = {"num_nodes": len(real), "num_tokens": sum(each.tokens for each in real)}
        return {"clock": self.clock, "page_size": 1, **sizes, "root": roots[0], "nodes": shown}

    def _shown(self, node: Node, listed: set[int], with_text: bool) -> dict[str, Any]:
        left_out = [self.nodes[child] for child in node.children if child not in listed]
        shown = {
            "id": node.id,
            "parent": node.parent,
            "tokens": node.tokens,
            "subtree_tokens": node.subtree_tokens,
            "subtree_nodes": node.subtree_nodes,
            "locks": node.locks,
            "age": self.clock - node.last_access,
            "namespace": node.namespace,
            "folded_nodes": sum(child.subtree_nodes for child in left_out),
            "folded_tokens": sum(child.subtree_tokens for child in left_out),
        }
        return shown | ({"text": node.text} if with_text and node.tokens else {})

    def _parent(self) -> int:
        """A few system prompts under each root, chats that go on, and many that begin anew below a popular one."""
        roots = self._num_namespaces
        if len(self.nodes) < roots * 5:
            return len(self.nodes) % roots
        if self._random.random() < 0.5:
            return self._random.randrange(max(roots, len(self.nodes) - 200), len(self.nodes))
        return min(int(self._random.paretovariate(0.35)) + roots - 1, len(self.nodes) - 1)
