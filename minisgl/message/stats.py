"""An engine in numbers."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """What scheduler and cache hold now, and what they did since the start.

    num_pages, page_size, free_pages: of the KV pool. evictable_tokens, protected_tokens: cached, and read by nobody or
    by somebody. queried_tokens: prompt tokens of admitted requests that looked for a prefix, of which hit_tokens were
    found. evicted_tokens: forgotten for want of pages (flushed ones do not count). computed_tokens: prompt tokens that
    went through the model, and tokens that did so again after a retraction. generated_tokens: sampled, those past a
    stop string included. num_finished, num_aborted, num_failed: requests by how they ended. num_retracted: times that
    a running request gave up its pages, to go on later. num_batches: batches launched. host_s: seconds in which the
    loop worked for them, from messages to replies, less what it waited for results and, on a CPU, less what linear
    layers, attention and the store of keys and values took in C++. capacity_hits: tokens that would have been found in
    a pool so many times as large, for each of CAPACITY_FACTORS; none if nobody counts. capacity_queried: tokens looked
    up while somebody did. causes: prompt tokens of admitted requests by why they were computed, or not; see `Cause`.
    """

    num_running: int = 0
    num_waiting: int = 0
    num_pages: int = 0
    page_size: int = 1
    free_pages: int = 0
    evictable_tokens: int = 0
    protected_tokens: int = 0
    queried_tokens: int = 0
    hit_tokens: int = 0
    evicted_tokens: int = 0
    computed_tokens: int = 0
    generated_tokens: int = 0
    num_finished: int = 0
    num_aborted: int = 0
    num_failed: int = 0
    num_batches: int = 0
    num_retracted: int = 0
    host_s: float = 0.0
    uptime_s: float = 0.0
    capacity_hits: tuple[float, ...] = ()
    capacity_queried: int = 0
    causes: dict[str, int] = field(default_factory=dict)
