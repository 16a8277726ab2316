"""The prefix cache's tree as text."""

from __future__ import annotations

from minisgl.kvcache.base import BasePrefixCache
from minisgl.tokenizer import Tokenizer

TEXT_LEN = 40  # characters of a node's text that are shown


def draw_tree(cache: BasePrefixCache, tokenizer: Tokenizer, max_nodes: int) -> str:
    """One line a node, children below their parent, at most `max_nodes` lines: tokens, locks, beginning of the text."""
    if not cache.shares:
        return "this prefix cache keeps nothing"
    lines: list[str] = []
    for run in cache.runs(head_len=TEXT_LEN):
        if len(lines) == max_nodes:
            lines.append("... more nodes are not shown")
            break
        text = tokenizer.decode(run.head.tolist(), skip_special_tokens=False)[:TEXT_LEN]
        lines.append(f"{'    ' * run.depth}└─ {run.length} tokens, {run.ref_count} locks: {text!r}")
    return "\n".join(lines) or "the cache is empty"
