"""What must hold for every node of a radix tree; each function raises an AssertionError that names what does not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minisgl.kvcache.radix_node import NO_CHILDREN, TOKEN_BYTES, RadixNode
from minisgl.utils.arrays import Int32Array


def check_nodes(
    roots: Sequence[RadixNode], nodes: Sequence[RadixNode], dead: Sequence[RadixNode], page_size: int, clock: int
) -> None:
    """Check every node by itself and against its children. nodes: all but `roots` and those that were purged."""
    for node in dead:
        _check_run(node, page_size)
        assert not node.children, f"{node}: purged, but it still has children"
        assert node.parent is not None, f"{node}: locked, but it leads nowhere"
        assert node.parent.ref_count >= (node.ref_count if node.parent.parent else 1), f"{node}: locked more than above"
    assert not NO_CHILDREN, f"a leaf's children were written to what all leaves share: {NO_CHILDREN}"
    for root in roots:
        _check_children(root, page_size)
    for node in nodes:
        _check_run(node, page_size)
        _check_children(node, page_size)
        assert not node.dead, f"{node}: purged, but it can still be matched"
        assert 0 < node.last_access <= clock, f"{node}: visited in the future, the clock is at {clock}"
        for child in node.children.values():
            assert child.ref_count <= node.ref_count, f"{child}: locked more often than its parent {node}"
            assert child.last_access <= node.last_access, f"{child}: visited later than its parent {node}"


def check_pages_held_once(held: Int32Array) -> None:
    """No page may hold the KV of two different prefixes."""
    assert (held >= 0).all(), f"negative page numbers: {held[held < 0].tolist()}"
    counts = np.bincount(held)  # a hundred times as quick as to sort a million pages
    assert (counts <= 1).all(), f"pages held more than once: {np.flatnonzero(counts > 1).tolist()}"


def _check_run(node: RadixNode, page_size: int) -> None:
    """A node holds whole pages, at least one, and a lock count that is not negative."""
    assert node.ref_count >= 0, f"{node}: negative ref_count"
    assert node.num_pages > 0, f"{node}: no pages"
    assert len(node.token_bytes) == node.num_pages * page_size * TOKEN_BYTES, (
        f"{node}: {node.length} tokens are not {node.num_pages} pages of {page_size}"
    )


def _check_children(node: RadixNode, page_size: int) -> None:
    """Children are known by their own first page, and know their parent."""
    for key, child in node.children.items():
        assert child.parent is node, f"{child}: its parent pointer leads to {child.parent}, not to {node}"
        assert key == child.token_bytes[: page_size * TOKEN_BYTES], f"{child}: filed under another page than its first"
