"""GET /inspect/tree, GET /inspect/tree/{id} and POST /inspect/path."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from minisgl.message.activity import State


class TreeNode(msgspec.Struct, kw_only=True):
    """A run of tokens without a branch. parent: null for the first node, and for a namespace's root, which has none.

    locks: running requests that hold it. age: calls of match and insert since its last visit. namespace: 0 is the
    public one. folded_nodes: children that are not in the list, and folded_tokens, of them and all below. text: of its
    first tokens, with --ui-show-text.
    """

    id: int
    parent: int | None
    tokens: int
    subtree_tokens: int
    subtree_nodes: int
    locks: int
    age: int
    namespace: int
    folded_nodes: int
    folded_tokens: int
    text: str | UnsetType = UNSET


class Tree(msgspec.Struct, kw_only=True):
    """The prefix cache's trees, or what is below one node: the largest subtrees.

    clock: calls of match and insert until now. num_nodes, num_tokens: of everything, shown or not. num_namespaces: how
    many trees there are. root: the first node. above: ids on the way to it. nodes: parents before children, siblings by
    subtree_tokens. salts: by the id of a namespace's root, with --ui-show-text.
    """

    clock: int
    page_size: int
    num_nodes: int
    num_tokens: int
    num_namespaces: int
    root: int
    above: list[int]
    nodes: list[TreeNode]
    salts: dict[str, str] | UnsetType = UNSET


class NodeUser(msgspec.Struct, kw_only=True):
    """One sequence. request_id: of the HTTP request that it belongs to, if that is known."""

    uid: int
    request_id: str | None
    state: State


class TreeNodeUse(msgspec.Struct, kw_only=True):
    """A node, and who uses it. path_tokens: from the root to its end.

    users: run, and it is a part of their prefix. waiting: would hit some of it now, the first 512. text: the end of its
    path, with --ui-show-text.
    """

    id: int
    path_tokens: int
    tokens: int
    locks: int
    age: int
    users: list[NodeUser]
    waiting: list[NodeUser]
    text: str | UnsetType = UNSET


class PromptPath(msgspec.Struct):
    """Where a prompt lies. matched_tokens: that a request would find. nodes: ids from the root down, the last one maybe
    matched in part.
    """

    prompt_tokens: int
    matched_tokens: int
    nodes: list[int]
