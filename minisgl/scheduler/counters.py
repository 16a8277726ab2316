"""What the scheduler did since its start, and what it and the cache hold now. For people: nothing decides by it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from minisgl.core import Cause
from minisgl.kvcache.capacity_curve import CapacityCurve
from minisgl.message import EngineStats, FinishReason
from minisgl.scheduler.cache_manager import CacheManager
from minisgl.scheduler.request import Request
from minisgl.utils.arrays import Int32Array


@dataclass(slots=True)
class Counters:
    """Totals since the start, as in `EngineStats`. curve: what other pools would hit, if it is to be known.

    causes: every one, if admissions are explained; else none.
    """

    curve: CapacityCurve | None = None
    queried_tokens: int = 0
    hit_tokens: int = 0
    computed_tokens: int = 0
    generated_tokens: int = 0
    num_finished: int = 0
    num_aborted: int = 0
    num_failed: int = 0
    num_batches: int = 0
    num_retracted: int = 0
    host_s: float = 0.0
    causes: dict[Cause, int] = field(default_factory=dict)
    started_at: float = field(default_factory=time.perf_counter)

    def admitted(self, request: Request) -> None:
        """It has its pages for the first time; those of its prompt that others had computed are hits."""
        if request.explanation is not None:
            for cause, num_tokens in request.explanation.causes.items():
                self.causes[cause] += num_tokens
        if request.reuses_prefix:
            self.queried_tokens += request.prompt_len
            self.hit_tokens += request.hit_len
            if self.curve is not None:
                self.curve.looked_up(request.ids(request.prompt_len), request.hit_len, request.namespace)

    def released(self, request: Request, ids: Int32Array) -> None:
        """It gives up its pages; of `ids` they stay cached while there is room, unless they must not be matched."""
        assert request.allocation is not None
        if self.curve is not None and not request.allocation.is_stale:
            self.curve.stored(ids, request.namespace)

    def all_purged(self) -> None:
        if self.curve is not None:
            self.curve.forget()

    def ended(self, reason: FinishReason) -> None:
        if reason == "abort":
            self.num_aborted += 1
        elif reason == "error":
            self.num_failed += 1
        else:
            self.num_finished += 1

    def with_sizes(self, manager: CacheManager, num_running: int, num_waiting: int) -> EngineStats:
        sizes = manager.prefix_cache.size_info
        return EngineStats(
            num_running=num_running,
            num_waiting=num_waiting,
            num_pages=manager.num_pages,
            page_size=manager.page_size,
            free_pages=manager.num_free_pages,
            evictable_tokens=sizes.evictable_size,
            protected_tokens=sizes.protected_size,
            queried_tokens=self.queried_tokens,
            hit_tokens=self.hit_tokens,
            evicted_tokens=manager.num_evicted_pages * manager.page_size,
            computed_tokens=self.computed_tokens,
            generated_tokens=self.generated_tokens,
            num_finished=self.num_finished,
            num_aborted=self.num_aborted,
            num_failed=self.num_failed,
            num_batches=self.num_batches,
            num_retracted=self.num_retracted,
            host_s=self.host_s,
            uptime_s=time.perf_counter() - self.started_at,
            causes=dict[str, int](self.causes.items()),
            capacity_hits=self.curve.hits if self.curve is not None else (),
            capacity_queried=self.curve.queried if self.curve is not None else 0,
        )
