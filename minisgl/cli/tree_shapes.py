"""A server's tree as lines of text and as a graph for Graphviz."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec import UNSET

from minisgl.cli.session import one_line
from minisgl.cli.words import count
from minisgl.server.schema.tree import Tree, TreeNode

INDENT = "  "


@dataclass
class Branch:
    """A node as the server told of it. depth: 0 of a root. name, label: what to say of it, in short and in full."""

    node: TreeNode
    depth: int
    name: str
    label: str
    children: list[Branch] = field(default_factory=list)

    @property
    def rest(self) -> str:
        """What of its children is not shown; "" if that is nothing."""
        num, tokens = self.node.folded_nodes, self.node.folded_tokens
        return f"{count(num, 'more branch', 'more branches')}, {count(tokens, 'token')}" if num else ""


def read_branches(tree: Tree) -> list[Branch]:
    """All of them, in the server's order. LookupError for what is no tree."""
    branches: dict[int, Branch] = {}
    salts = {} if tree.salts is UNSET else tree.salts
    for node in tree.nodes:
        above = branches[node.parent] if node.parent is not None else None
        if node.tokens:
            name, label = _name(node), _label(node)
        else:
            name = label = _namespace(node, salts.get(str(node.id)))
        branch = branches[node.id] = Branch(node, above.depth + 1 if above else 0, name, label)
        if above:
            above.children.append(branch)
    return list(branches.values())


def summary(tree: Tree) -> str:
    """One line on all of it."""
    line = f"{count(tree.num_tokens, 'token')} in {count(tree.num_nodes, 'node')}"
    return line + (f" of {count(tree.num_namespaces, 'namespace')}" if tree.num_namespaces > 1 else "")


def as_text(tree: Tree, branches: Sequence[Branch]) -> str:
    """A line for each node, children below their parent and indented."""
    lines = [summary(tree)]
    stack: list[Branch | str] = [branch for branch in reversed(branches) if branch.depth == 0]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            lines.append(item)
            continue
        lines.append(f"{INDENT * item.depth}{item.label}")
        if item.rest:
            stack.append(f"{INDENT * (item.depth + 1)}... {item.rest}")
        stack += reversed(item.children)
    return "\n".join(lines) + "\n"


def as_dot(branches: Sequence[Branch]) -> str:
    """In Graphviz's language: locked nodes are drawn bold."""
    lines = ["digraph tree {", "  rankdir=LR", '  node [shape=box, fontname="sans-serif", fontsize=10]']
    for branch in branches:
        number, parent = branch.node.id, branch.node.parent
        style = ", style=bold" if branch.node.locks else ""
        lines.append(f"  n{number} [label={_quoted(branch.label)}{style}]")
        if parent is not None:
            lines.append(f"  n{parent} -> n{number}")
        if branch.rest:
            lines += [f"  r{number} [label={_quoted(branch.rest)}, style=dotted]", f"  n{number} -> r{number}"]
    return "\n".join([*lines, "}"]) + "\n"


def _name(node: TreeNode) -> str:
    return one_line(node.text)[1:-1] if node.text else count(node.tokens, "token")


def _label(node: TreeNode) -> str:
    parts = [count(node.tokens, "token")]
    if node.subtree_tokens > node.tokens:
        parts[0] += f" ({node.subtree_tokens:,} with all below)"
    if node.locks:
        parts.append(count(node.locks, "lock"))
    parts.append(f"age {node.age:,}")
    return ", ".join(parts) + (f": {one_line(node.text)}" if node.text else "")


def _namespace(node: TreeNode, salt: str | None) -> str:
    name = f"namespace {node.namespace}" if node.namespace else "public namespace"
    return f"{name}{f' {one_line(salt)}' if salt else ''}: {count(node.subtree_tokens, 'token')}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
