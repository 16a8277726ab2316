"""What a program or a chat shows of its prompts and the prefix cache: totals so far, and pages now."""

from __future__ import annotations

import threading
from typing import Any

from minisgl.llm.stream import Output, choices_of
from minisgl.message import EngineStats, hit_rates


class Stats:
    """Counts finished prompts; safe between threads.

    hit_rate: cached prompt tokens over all prompt tokens. capacity_hit_rates: by estimate, those of pools so many times
    as large; None where it is not known.
    """

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

    def with_engine(self, engine: EngineStats) -> dict[str, Any]:
        """The totals, and what the pool holds and the model computed by the engine's account."""
        with self._lock:
            return {
                "prompts": self._prompts,
                "prompt_tokens": self._prompt_tokens,
                "cached_tokens": self._cached_tokens,
                "generated_tokens": self._generated_tokens,
                "hit_rate": self._cached_tokens / max(1, self._prompt_tokens),
                "capacity_hit_rates": dict(hit_rates(engine)),
                "computed_tokens": engine.computed_tokens,
                "num_retracted": engine.num_retracted,
                "num_batches": engine.num_batches,
                "host_s": engine.host_s,
                "page_size": engine.page_size,
                "num_pages": engine.num_pages,
                "free_pages": engine.free_pages,
                "evictable_tokens": engine.evictable_tokens,
                "protected_tokens": engine.protected_tokens,
            }
