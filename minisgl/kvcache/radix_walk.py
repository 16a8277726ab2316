"""Walks down the tree that change nothing."""

from __future__ import annotations

from minisgl.kvcache.radix_node import TOKEN_BYTES, RadixNode
from minisgl.kvcache.slots import Tokens
from minisgl.utils.math import align_down


def seek(node: RadixNode, tokens: Tokens, cached_len: int, page_size: int) -> tuple[RadixNode, int]:
    """Where the match of `tokens` (bytes of whole pages) ends, which reaches the end of `node` at `cached_len` tokens.

    The node in which it ends, maybe half-way, and how many tokens match.
    """
    node, _, cached_len = find_end(node, tokens, cached_len, page_size)
    return node, cached_len


def find_end(node: RadixNode, tokens: Tokens, cached_len: int, page_size: int) -> tuple[RadixNode, int, int]:
    """As `seek`: the node, how many of its bytes the match reaches over, and how many tokens match."""
    end, page_bytes = cached_len * TOKEN_BYTES, page_size * TOKEN_BYTES
    while (child := node.children.get(bytes(tokens[end : end + page_bytes]))) is not None:
        node, key = child, child.token_bytes
        piece = tokens[end : end + len(key)]
        if len(piece) < len(key) or not key.startswith(piece):
            at = align_down(child.count_matching(piece) * TOKEN_BYTES, page_bytes)
            return node, at, (end + at) // TOKEN_BYTES
        end += len(key)
    return node, len(node.token_bytes), end // TOKEN_BYTES


def path_len(node: RadixNode) -> int:
    """Tokens from the root to the end of `node`."""
    num_bytes, at = 0, node
    while at.parent is not None:
        num_bytes += len(at.token_bytes)
        at = at.parent
    return num_bytes // TOKEN_BYTES
