"""What a replay counts."""

from __future__ import annotations

from dataclasses import dataclass

from minisgl.simulate.workload import Item


@dataclass(slots=True)
class HitCounts:
    """Tokens of prompts, and how many of them were in the cache when their request came."""

    num_requests: int = 0
    prompt_tokens: int = 0
    hit_tokens: int = 0
    num_evicted_pages: int = 0

    @property
    def hit_rate(self) -> float:
        return self.hit_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    def add(self, item: Item, num_units: int) -> None:
        """One request, of whose prompt the first `num_units` units were cached."""
        self.num_requests += 1
        self.prompt_tokens += item.request.prompt_len
        self.hit_tokens += item.prompt_tokens(num_units)
