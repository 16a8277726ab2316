"""Taking a part of the tree away on demand, whoever reads it."""

from __future__ import annotations

from minisgl.kvcache.radix_forest import below
from minisgl.kvcache.radix_node import NO_CHILDREN, TOKEN_BYTES, RadixNode
from minisgl.kvcache.radix_walk import path_len, seek
from minisgl.kvcache.slots import Tokens


def nodes_to_purge(root: RadixNode, prefix: Tokens, page_size: int) -> list[RadixNode]:
    """The highest nodes, siblings, without which nothing is cached that begins with `prefix` (bytes of tokens).

    What is cached begins with it from the page on that holds its last token. If such a page lies inside a node, the
    node goes as a whole: what is before the page leads nowhere else, and no reader ends there.
    """
    if not prefix:
        return list(root.children.values())
    page_bytes = page_size * TOKEN_BYTES
    cut = (len(prefix) - 1) // page_bytes * page_bytes
    last = bytes(prefix[cut:])
    node, cached_len = seek(root, prefix[:cut], 0, page_size)
    if cached_len * TOKEN_BYTES < cut:
        return []
    beyond = path_len(node) * TOKEN_BYTES - cut  # bytes of the node after `cut`
    if beyond:
        return [node] if node.token_bytes.startswith(last, len(node.token_bytes) - beyond) else []
    if len(last) == page_bytes:
        return [node.children[last]] if last in node.children else []
    return [child for first_page, child in node.children.items() if first_page.startswith(last)]


def kill(tops: list[RadixNode]) -> tuple[list[RadixNode], RadixNode]:
    """Mark `tops`, siblings, all below them, and those above that led only there, as dead, and cut them off.

    An ancestor that is left without children goes too if nobody has it locked but through them. Returns the dead
    nodes, and the node that was above them. Those that are locked keep their parents, so locks still find their way.
    """
    parent = tops[0].parent
    assert parent is not None, "the root cannot be purged"
    killed = [*tops, *below(*tops)]
    num_locks = sum(top.ref_count for top in tops)
    for top in tops:
        del parent.children[top.first_page]
    while (above := parent.parent) is not None and not parent.children and parent.ref_count == num_locks:
        killed.append(parent)
        del above.children[parent.first_page]
        parent = above
    for node in killed:
        node.dead = True
        node.children = NO_CHILDREN
    for node in killed:
        if node.ref_count == 0:
            node.parent = None
    return killed, parent
