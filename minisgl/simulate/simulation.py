"""The real scheduler and prefix cache, driven by a trace and a virtual clock; the engine is a model of step times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from minisgl.core import Batch, BatchResult, Limits, Req, SamplingParams
from minisgl.message import NextTokens, TokenReply, UserMsg
from minisgl.scheduler.cache_manager import CacheManager
from minisgl.scheduler.scheduler import Scheduler
from minisgl.simulate.arrivals import Arrivals
from minisgl.simulate.capacity import estimates, make_curve
from minisgl.simulate.config import SimulationConfig
from minisgl.simulate.counts import HitCounts
from minisgl.simulate.timeline import Life, Timeline
from minisgl.simulate.workload import MAX_ID, Item, Workload
from minisgl.utils.arrays import Int32Array
from minisgl.utils.math import div_ceil

END_TOKEN = MAX_ID  # what ends every output; the KV of a last token is never computed


def simulate(
    workload: Workload,
    config: SimulationConfig,
    num_pages: int,
    arrivals: Arrivals,
    progress: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Serve every request of the workload; what came of it, times in seconds of the virtual clock.

    progress: called at the end of each request. A request that can never run fails, as it would in a server.
    """
    return Simulation(workload, config, num_pages, arrivals, progress).run()


@dataclass(frozen=True, slots=True)
class _Live:
    """A request that has come and is not over. ids: [num_kept]."""

    item: Item
    ids: Int32Array

    @property
    def num_outputs(self) -> int:
        """Units generated: those that are kept, and one that ends the output."""
        return self.item.num_kept - self.item.num_prompt + 1

    def token_at(self, position: int) -> int:
        return int(self.ids[position]) if position < len(self.ids) else END_TOKEN

    def output_tokens(self, index: int) -> int:
        """Real tokens that the generated unit of this index stands for."""
        total, parts = self.item.request.output_len, self.num_outputs
        return total * (index + 1) // parts - total * index // parts

    def num_tokens(self, num_units: int) -> int:
        """Real tokens in the first units of prompt and output."""
        over = num_units - self.item.num_prompt
        if over < 0:
            return self.item.prompt_tokens(num_units)
        return self.item.request.prompt_len + over * self.item.units.unit


class Simulation:
    """One run. Steps follow one another: a batch is committed before the next one is planned."""

    def __init__(
        self,
        workload: Workload,
        config: SimulationConfig,
        num_pages: int,
        arrivals: Arrivals,
        progress: Callable[[], None] = lambda: None,
    ) -> None:
        self._workload = workload
        self._items = workload.items
        self._max_tokens = div_ceil(config.max_tokens or 1, workload.unit)
        self._scheduler = _make_scheduler(workload, config, num_pages, self._max_tokens)
        self._times = config.step_times
        self._arrivals = arrivals
        self._progress = progress
        self._now = 0.0
        self._timeline = Timeline()
        self._hits = HitCounts()
        self._live: dict[int, _Live] = {}
        self._computed_tokens = self._generated_tokens = 0

    def run(self) -> dict[str, Any]:
        while self._turn():
            pass
        assert not self._live, f"{len(self._live)} requests wait for ever"
        return self._summary()

    def _turn(self) -> bool:
        """One step, or the way to the next arrival; whether there was either."""
        self._receive()
        batch = self._scheduler.plan()
        if batch is not None:
            self._step(batch)
        self._take_replies()
        next_s = self._arrivals.next_s
        if batch is None and next_s is not None:
            self._now = max(self._now, next_s)
        return batch is not None or next_s is not None

    def _receive(self) -> None:
        messages = []
        for arrived_s, uid in self._arrivals.take(self._now):
            item = self._items[uid]
            live = self._live[uid] = _Live(item, item.ids())
            self._timeline.lives[uid] = Life(arrived_s)
            params = _params(max(live.num_outputs, self._max_tokens))
            messages.append(UserMsg(uid, live.ids[: item.num_prompt], params, seed=0))
        self._scheduler.receive(messages)

    def _step(self, batch: Batch) -> None:
        for req in batch.reqs:
            life = self._timeline.lives[req.uid]
            life.admitted_s = self._now if life.admitted_s is None else life.admitted_s
        prompts_end = self._now + self._times.overhead_ms * 1e-3 + self._prefill_s(batch)
        for req in batch.reqs:
            life = self._timeline.lives[req.uid]
            if req.samples and life.first_token_s is None:
                life.first_token_s = prompts_end
        ends = prompts_end + self._decode_s(batch)
        self._timeline.spent(ends - self._now, self._pages_used(), self._scheduler.stats().num_waiting)
        self._now = ends
        self._scheduler.commit(batch, self._forward(batch))

    def _prefill_s(self, batch: Batch) -> float:
        num_tokens = context = 0
        for req in batch.reqs:
            if req.is_prefill:
                live = self._live[req.uid]
                end = live.num_tokens(req.device_len)
                num_tokens += end - live.num_tokens(req.cached_len)
                context += end
        self._computed_tokens += num_tokens
        return self._times.prefill_s(num_tokens, context)

    def _decode_s(self, batch: Batch) -> float:
        rows = []
        for req in batch.reqs:
            if req.samples:
                live = self._live[req.uid]
                rows.append((live.output_tokens(req.num_generated), live.num_tokens(req.device_len)))
        self._generated_tokens += sum(num_tokens for num_tokens, _ in rows)
        return self._times.decode_s(rows)

    def _pages_used(self) -> int:
        """Held by running requests: neither free nor evictable."""
        manager = self._scheduler.cache_manager
        evictable = manager.prefix_cache.size_info.evictable_size // manager.page_size
        return manager.num_pages - manager.num_free_pages - evictable

    def _forward(self, batch: Batch) -> BatchResult:
        """The tokens that the trace says are next."""
        return BatchResult(np.array([self._next_token(req) for req in batch.reqs], np.int32))

    def _next_token(self, req: Req) -> int:
        return self._live[req.uid].token_at(req.device_len) if req.samples else -1

    def _take_replies(self) -> None:
        for reply in self._scheduler.take_replies():
            if isinstance(reply, NextTokens):
                continue
            assert isinstance(reply, TokenReply)
            if reply.cached_len is not None and reply.error is None:
                self._hits.add(self._live[reply.uid].item, reply.cached_len)
            if reply.finish_reason is not None:
                self._timeline.lives[reply.uid].ended_s = self._now
                del self._live[reply.uid]
                self._arrivals.ended(reply.uid, self._now)
                self._progress()

    def _summary(self) -> dict[str, Any]:
        stats, hits = self._scheduler.stats(), self._hits
        duration = max(self._now, 1e-12)
        return {
            "num_requests": len(self._items),
            "num_failed": stats.num_failed,
            "prompt_tokens": hits.prompt_tokens,
            "hit_tokens": hits.hit_tokens,
            "hit_rate": hits.hit_rate,
            "capacity": estimates(stats.capacity_hits, self._workload, hits),
            "computed_tokens": self._computed_tokens,
            "generated_tokens": self._generated_tokens,
            "num_pages": stats.num_pages,
            "num_evicted_pages": stats.evicted_tokens // stats.page_size,
            "num_retracted": stats.num_retracted,
            "num_batches": stats.num_batches,
            "requests_per_s": stats.num_finished / duration,
            "output_tokens_per_s": self._generated_tokens / duration,
            **self._timeline.summary(self._now),
        }


@cache
def _params(max_tokens: int) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens)


def _make_scheduler(workload: Workload, config: SimulationConfig, num_pages: int, max_tokens: int) -> Scheduler:
    """max_tokens: units that every request asks for at least."""
    max_seq_len = max(item.num_prompt + max(max_tokens, item.num_kept - item.num_prompt + 1) for item in workload.items)
    page_size = workload.units_per_page
    manager = CacheManager(
        num_pages, page_size, config.max_running_req, max_seq_len, config.cache_type, config.eviction
    )
    return Scheduler(
        manager,
        Limits(END_TOKEN + 1, max_seq_len, num_pages * page_size),
        max(1, config.max_extend_tokens // workload.unit),
        frozenset({END_TOKEN}),
        alternates=False,
        shared_prefix=False,  # nothing reads what it would say
        reserve=config.reserve,
        policy=config.policy,
        max_overtakes=config.max_overtakes,
        lookahead=config.lookahead_width,
        curve=make_curve(workload, num_pages) if manager.prefix_cache.shares else None,
    )
