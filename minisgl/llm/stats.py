"""What a program or a chat shows of the prefix cache: totals so far, pages now, and the tree as text."""

from __future__ import annotations

import threading
from typing import Any

from minisgl.kvcache.base import BasePrefixCache
from minisgl.llm.stream import Output
from minisgl.scheduler import CacheManager
from minisgl.tokenizer import Tokenizer

TEXT_LEN = 40  # characters of a node's text that are shown


class Stats:
    """Counts finished prompts; safe between threads. hit_rate: cached prompt tokens over all prompt tokens."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._prompts = self._prompt_tokens = self._cached_tokens = self._generated_tokens = 0

    def count(self, output: Output) -> None:
        choices = output.get("choices", [output])
        with self._lock:
            self._prompts += 1
            self._prompt_tokens += sum(choice["prompt_tokens"] for choice in choices)
            self._cached_tokens += sum(choice["cached_tokens"] for choice in choices)
            self._generated_tokens += sum(len(choice["token_ids"]) for choice in choices)

    def with_pages(self, manager: CacheManager) -> dict[str, Any]:
        """The totals and what the pool holds now. Only between two steps."""
        sizes = manager.prefix_cache.size_info
        with self._lock:
            return {
                "prompts": self._prompts,
                "prompt_tokens": self._prompt_tokens,
                "cached_tokens": self._cached_tokens,
                "generated_tokens": self._generated_tokens,
                "hit_rate": self._cached_tokens / max(1, self._prompt_tokens),
                "page_size": manager.page_size,
                "num_pages": manager.num_pages,
                "free_pages": manager.num_free_pages,
                "evictable_tokens": sizes.evictable_size,
                "protected_tokens": sizes.protected_size,
            }


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
