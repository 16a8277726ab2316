"""A server's tree as lines of text and as a graph for Graphviz."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from minisgl.cli.session import printable
from minisgl.cli.words import count

INDENT = "  "


@dataclass
class Branch:
    """A node as the server told of it. depth: 0 of a root. name, label: what to say of it, in short and in full."""

    fields: Mapping[str, Any]
    depth: int
    name: str
    label: str
    children: list[Branch] = field(default_factory=list)

    @property
    def rest(self) -> str:
        """What of its children is not shown; "" if that is nothing."""
        num, tokens = self.fields["folded_nodes"], self.fields["folded_tokens"]
        return f"{count(num, 'more branch', 'more branches')}, {count(tokens, 'token')}" if num else ""


def read_branches(answer: Mapping[str, Any]) -> list[Branch]:
    """All of them, in the server's order. LookupError or TypeError for what is no tree."""
    branches: dict[int, Branch] = {}
    salts = answer.get("salts") or {}
    for node in answer["nodes"]:
        above = branches[node["parent"]] if node["parent"] is not None else None
        if node["tokens"]:
            name, label = _name(node), _label(node)
        else:
            name = label = _namespace(node, salts.get(str(node["id"])))
        branch = branches[node["id"]] = Branch(node, above.depth + 1 if above else 0, name, label)
        if above:
            above.children.append(branch)
    return list(branches.values())


def summary(answer: Mapping[str, Any]) -> str:
    """One line on all of it."""
    line = f"{count(answer['num_tokens'], 'token')} in {count(answer['num_nodes'], 'node')}"
    num_spaces = answer["num_namespaces"]
    return line + (f" of {count(num_spaces, 'namespace')}" if num_spaces > 1 else "")


def as_text(answer: Mapping[str, Any], branches: Sequence[Branch]) -> str:
    """A line for each node, children below their parent and indented."""
    lines = [summary(answer)]
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
        number, parent = branch.fields["id"], branch.fields["parent"]
        style = ", style=bold" if branch.fields["locks"] else ""
        lines.append(f"  n{number} [label={_quoted(branch.label)}{style}]")
        if parent is not None:
            lines.append(f"  n{parent} -> n{number}")
        if branch.rest:
            lines += [f"  r{number} [label={_quoted(branch.rest)}, style=dotted]", f"  n{number} -> r{number}"]
    return "\n".join([*lines, "}"]) + "\n"


def _name(node: Mapping[str, Any]) -> str:
    text = node.get("text")
    return _one_line(text)[1:-1] if text else count(node["tokens"], "token")


def _label(node: Mapping[str, Any]) -> str:
    parts = [count(node["tokens"], "token")]
    if node["subtree_tokens"] > node["tokens"]:
        parts[0] += f" ({node['subtree_tokens']:,} with all below)"
    if node["locks"]:
        parts.append(count(node["locks"], "lock"))
    parts.append(f"age {node['age']:,}")
    text = node.get("text")
    return ", ".join(parts) + (f": {_one_line(text)}" if text else "")


def _namespace(node: Mapping[str, Any], salt: str | None) -> str:
    name = f"namespace {node['namespace']}" if node["namespace"] else "public namespace"
    return f"{name}{f' {_one_line(salt)}' if salt else ''}: {count(node['subtree_tokens'], 'token')}"


def _one_line(text: str) -> str:
    """In quotes, so that blanks can be seen, and without what a terminal would obey."""
    return repr(printable(text))


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
