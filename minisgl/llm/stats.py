"""What a program or a chat shows of its prompts and the prefix cache: totals so far, and pages now."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from minisgl.llm.stream import Output, choices_of

if TYPE_CHECKING:  # a client of an engine in another process has Stats too, and no torch
    from minisgl.scheduler.cache_manager import CacheManager


class Stats:
    """Counts finished prompts; safe between threads. hit_rate: cached prompt tokens over all prompt tokens."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._prompts = self._prompt_tokens = self._cached_tokens = self._generated_tokens = 0

    def count(self, output: Output) -> None:
        choices = choices_of(output)
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
