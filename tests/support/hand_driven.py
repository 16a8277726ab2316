"""A scheduler over the KV oracle; messages, plans and commits come one by one in any order that is allowed."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
from support.kv_oracle import OracleOutput
from support.promises import Promises
from support.radix_model import NAMESPACES, lru_victims, tagged
from support.serving import Serving, one_by_one

from minisgl.core import Batch, ForwardInput, Req
from minisgl.kvcache import PUBLIC, Namespace
from minisgl.kvcache.base import BasePrefixCache
from minisgl.message import AbortMsg, ExplainMsg, FinishMsg, ProbeMsg, PurgeMsg, RequestMsg, StatsMsg, TokenReply
from minisgl.scheduler.scheduler import Scheduler
from minisgl.utils.arrays import Int32Array
from minisgl.utils.math import div_ceil

QUESTION = -1  # the uid of questions


class HandDriven(Serving):
    """in_flight: batches that were launched and are not committed, at most two.

    watched: prompts that are watched though no request waits with them, each with its watch.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(max_seq_len=96, **options)
        self.options = options
        self.promises = Promises(self, options["max_overtakes"])
        self.in_flight: deque[tuple[Batch, OracleOutput]] = deque()
        self.watched: list[tuple[Any, list[int], Namespace]] = []
        self.has_expected = options["lookahead"] > 0
        self.spaces = {PUBLIC}
        self.num_predicted = 0  # evictions compared with a slow account
        self._pages_read: dict[int, Int32Array] = {}  # by batches in flight
        self._answer: Any = None
        self._evict_pages = self.cache.evict_pages
        self.cache.evict_pages = self._evict_as_predicted  # type: ignore[method-assign]

    @property
    def cache(self) -> BasePrefixCache:
        return self.manager.prefix_cache

    # ---- messages

    def submit(self, prompt: Sequence[int], *args: Any, salt: str = "", **params: Any) -> int:
        uid = super().submit(prompt, *args, salt=salt, **params)
        self.spaces.add(Namespace(salt))
        self.promises.submitted(uid)
        self.scheduler.receive(self.inbox.receive(timeout=0))
        self.take_replies()
        return uid

    def abort(self, uid: int) -> None:
        self.promises.end_asked(uid)
        self.tell(AbortMsg(uid))
        assert uid not in self.prompts or uid in self.finished or uid in self.promises.cut

    def finish(self, uid: int, num_tokens: int) -> None:
        self.promises.end_asked(uid, num_tokens)
        self.tell(FinishMsg(uid, num_tokens))

    def tell(self, message: RequestMsg) -> Any:
        """Hand a message in; the answer, if it was a question."""
        self.scheduler.receive([message])
        self.take_replies()
        answer, self._answer = self._answer, None
        return answer

    def probe(self, ids: Sequence[int], salt: str) -> Any:
        """How much is cached of it, which an explanation says too."""
        prompt = np.array(ids, np.int32)
        found = self.tell(ProbeMsg(QUESTION, prompt, salt))
        explained = self.tell(ExplainMsg(QUESTION, prompt, salt))
        assert sum(explained.causes.values()) == len(prompt)
        assert explained.hit == found
        assert explained.left_at >= found
        return found

    def stats(self) -> Any:
        return self.tell(StatsMsg(QUESTION, recount=True))

    def purge(self, prefix: Sequence[int], salt: str | None = "") -> None:
        """salt: None is everybody's."""
        before = self.manager.num_free_pages
        self.promises.purged(prefix, NAMESPACES if salt is None else [Namespace(salt)])
        freed = self.tell(PurgeMsg(QUESTION, np.array(prefix, np.int32), salt))
        assert freed == (self.manager.num_free_pages - before) * self.manager.page_size

    def take_replies(self) -> None:
        for reply in one_by_one(self.scheduler.take_replies()):
            if isinstance(reply, TokenReply):
                self._take(reply)
                self.promises.check_tokens(reply.uid)
            else:
                assert reply.uid == QUESTION
                self._answer = reply.answer

    # ---- batches

    def plan(self) -> bool:
        """Launch a batch, with at most one in flight before; whether there was something to do."""
        assert len(self.in_flight) <= 1
        running = [uid for uid, request in self.scheduler._admitted.items() if request.is_running]
        batch = self.scheduler.plan(self.settle)
        self.promises.check_retractions(running)
        if batch is not None:
            self.promises.planned(batch)
            output = self.forward(ForwardInput(batch))
            assert isinstance(output, OracleOutput)
            self.promises.launched(batch, output)
            self.in_flight.append((batch, output))
            self._pages_read[batch.step] = np.concatenate([self._row(req) for req in batch.reqs])
            self.engine.fail_tokens = frozenset()
        self.take_replies()
        return batch is not None

    def commit(self) -> None:
        """The oldest batch in flight."""
        batch, output = self.in_flight.popleft()
        self.promises.committed(batch, output)
        self.scheduler.commit(batch, output.result())
        del self._pages_read[batch.step]
        self.take_replies()

    def settle(self) -> None:
        while self.in_flight:
            self.commit()

    def drain(self) -> None:
        """Until every request has ended."""
        self.settle()
        for _ in range(5_000):
            if not self.scheduler.has_work:
                break
            assert self.plan(), "there is work, and nobody does it"
            self.settle()
        assert not self.scheduler.has_work, "still at work"
        self.check_at_rest()
        self.promises.check_ends()

    def change_policy(self, **changes: Any) -> None:
        """Let all finish; then another scheduler goes on with the same pages and cache."""
        self.drain()
        self.options |= changes
        old, options = self.scheduler, self.options
        self.scheduler = Scheduler(
            self.manager,
            old.limits,
            options["max_extend_tokens"],
            old.end_token_ids,
            alternates=not options["overlap"],
            **{name: options[name] for name in ("reserve", "policy", "max_overtakes", "lookahead")},
        )
        self.promises.max_overtakes = options["max_overtakes"]
        self.has_expected |= options["lookahead"] > 0
        self.engine.fail_steps.clear()

    # ---- checks

    def check(self) -> None:
        """After every operation."""
        self.scheduler.check_integrity()
        self.promises.check_contents()
        for watch, ids, namespace in self._watches():
            assert watch.cached_len <= self.cache.probe(ids, namespace)
        for step, pages in self._pages_read.items():
            assert not np.isin(pages, self.manager._free.free_pages()).any(), f"batch {step} reads pages that are free"

    def _row(self, req: Req) -> Int32Array:
        return self.engine.page_table[req.table_idx, : div_ceil(req.device_len, self.manager.page_size)]

    def _watches(self) -> list[tuple[Any, Int32Array, Namespace]]:
        queue = self.scheduler._admission._waiting.values()
        waiting = [(w.watch, w.request.wanted_ids[:-1], w.request.namespace) for w in queue if w.watch is not None]
        return waiting + [(watch, np.array(ids, np.int32), namespace) for watch, ids, namespace in self.watched]

    def _evict_as_predicted(self, num_pages: int, trim: bool = False) -> Int32Array:
        """`evict_pages`, compared with the leaves that go by looking at all of them, where these tell all."""
        predicts = self.options["eviction"] == "lru" and not (self.has_expected and len(self.spaces) > 1)
        if not predicts:
            return self._evict_pages(num_pages, trim)
        expected = [
            tagged(ids[: watch.cached_len].tolist(), namespace)
            for watch, ids, namespace in sorted(self._watches(), key=lambda waiting: waiting[0].expected)
            if watch.expected and watch.cached_len
        ]
        victims = lru_victims(self.cache, num_pages, trim, expected)
        freed = self._evict_pages(num_pages, trim)
        assert freed.tolist() == victims, f"{freed} went, and not {victims}"
        self.num_predicted += 1
        return freed
