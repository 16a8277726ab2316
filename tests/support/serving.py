"""A scheduler and its loop over the KV oracle, driven by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from support.group_checks import check_groups
from support.kv_oracle import VOCAB, OracleEngine

from minisgl.core import BatchOutput, Explanation, ForwardInput, Limits, SamplingParams
from minisgl.kvcache import Namespace
from minisgl.kvcache.capacity_curve import CapacityCurve
from minisgl.message import (
    AbortMsg,
    CountReply,
    FinishMsg,
    LocalQueue,
    NextTokens,
    PurgeMsg,
    Reply,
    RequestMsg,
    StatsReply,
    TokenReply,
    UserMsg,
)
from minisgl.scheduler.cache_manager import CacheManager
from minisgl.scheduler.loop import Loop
from minisgl.scheduler.request import Request
from minisgl.scheduler.reserve import RESERVES, FullReserve
from minisgl.scheduler.scheduler import Scheduler
from minisgl.utils.math import div_ceil


class StingyReserve(FullReserve):
    """Promises nothing but what is needed now, so that pages run out all the time."""

    adapts = True

    def kv_len(self, request: Request) -> int:
        return max(request.prefill_len, request.device_len + 1)


RESERVES["stingy"] = StingyReserve


def one_by_one(replies: Sequence[Reply]) -> Iterator[TokenReply | StatsReply | CountReply]:
    """The same, each to one request."""
    for reply in replies:
        if isinstance(reply, NextTokens):
            yield from reply.each()
        else:
            yield reply


class Serving:
    """Everything between a request and its tokens but the model. After each step all pages are recounted."""

    def __init__(
        self,
        num_pages: int = 64,
        page_size: int = 1,
        max_running_req: int = 8,
        max_seq_len: int = 256,
        max_extend_tokens: int = 1024,
        cache_type: str = "radix",
        overlap: bool = False,
        end_token_ids: frozenset[int] = frozenset(),
        reserve: str = "estimate",
        policy: str = "fcfs",
        max_overtakes: int = 64,
        lookahead: int = 256,
        eviction: str = "lru",
        shared_prefix: bool = True,
        curve: CapacityCurve | None = None,
        ghost_tokens: int | None = 64,
    ) -> None:
        self.manager = CacheManager(
            num_pages, page_size, max_running_req, max_seq_len, cache_type, eviction, ghost_tokens
        )
        self.engine = OracleEngine(num_pages, page_size, max_running_req, div_ceil(max_seq_len, page_size))
        limits = Limits(VOCAB, max_seq_len, num_pages * page_size)
        self.scheduler = Scheduler(
            self.manager,
            limits,
            max_extend_tokens,
            end_token_ids,
            alternates=not overlap,
            shared_prefix=shared_prefix,
            reserve=reserve,
            policy=policy,
            max_overtakes=max_overtakes,
            lookahead=lookahead,
            curve=curve,
        )
        self.inbox: LocalQueue[RequestMsg] = LocalQueue()
        self.outbox: LocalQueue[Reply] = LocalQueue()
        self.loop = Loop(self.scheduler, self.forward, self.inbox, self.outbox, overlap)
        self.shared_prefix = shared_prefix
        self.prompts: dict[int, list[int]] = {}
        self.params: dict[int, SamplingParams] = {}
        self.salts: dict[int, str] = {}
        self.tokens: dict[int, list[int]] = {}
        self.finished: dict[int, TokenReply] = {}
        self.cached_len: dict[int, int] = {}
        self.queue_s: dict[int, float] = {}
        self.explanations: dict[int, Explanation] = {}
        self.num_steps = 0

    def submit(
        self,
        prompt: Sequence[int],
        max_tokens: int = 4,
        salt: str = "",
        priority: int = 0,
        explain: bool = False,
        **params: object,
    ) -> int:
        uid = len(self.tokens)
        self.tokens[uid] = []
        sampling = SamplingParams(max_tokens=max_tokens, **params)  # type: ignore[arg-type]
        self.prompts[uid], self.params[uid], self.salts[uid] = list(prompt), sampling, salt
        ids = np.array(prompt, np.int32)
        self.inbox.send([UserMsg(uid, ids, sampling, seed=uid, cache_salt=salt, priority=priority, explain=explain)])
        return uid

    def abort(self, uid: int) -> None:
        self.inbox.send([AbortMsg(uid)])

    def finish(self, uid: int, num_tokens: int) -> None:
        self.inbox.send([FinishMsg(uid, num_tokens)])

    def flush(self) -> None:
        self.inbox.send([PurgeMsg(-1, np.empty(0, np.int32))])

    def purge(self, prefix: Sequence[int], salt: str = "") -> None:
        self.scheduler.purge(Namespace(salt), np.array(prefix, np.int32))

    def step(self) -> None:
        self.inbox.send([AbortMsg(-1)])  # an unknown uid is ignored, and keeps an idle loop from waiting
        self.loop.step()
        self.num_steps += 1
        self.scheduler.check_integrity()
        for reply in one_by_one(self.outbox.receive(timeout=0)):
            if isinstance(reply, TokenReply):
                self._take(reply)

    def forward(self, forward_input: ForwardInput) -> BatchOutput:
        forward_input.batch.check_integrity()
        output = self.engine.forward(forward_input)
        check_groups(forward_input.batch, self.engine.page_table, self.manager, self.shared_prefix)
        return output

    def run(self, max_steps: int = 10_000) -> None:
        """Until nothing is left to do; AssertionError when that takes more than `max_steps`."""
        self.step()
        for _ in range(max_steps):
            if not self.loop.has_work:
                break
            self.step()
        assert not self.loop.has_work, f"still at work after {max_steps} steps"
        self.check_at_rest()

    def check_at_rest(self) -> None:
        """Nothing runs, so every page is free or cached, and no lock is held."""
        sizes = self.manager.prefix_cache.size_info
        assert sizes.protected_size == 0
        assert self.manager.num_free_pages + sizes.evictable_size // self.manager.page_size == self.manager.num_pages
        assert self.manager.available_pages == self.manager.num_pages

    def generate(self, prompts: Sequence[Sequence[int]], max_tokens: int = 4) -> list[list[int]]:
        uids = [self.submit(prompt, max_tokens) for prompt in prompts]
        self.run()
        return [self.tokens[uid] for uid in uids]

    def _take(self, reply: TokenReply) -> None:
        assert reply.uid not in self.finished, f"news of uid {reply.uid} after its end"
        self.tokens[reply.uid].extend(reply.token_ids)
        if reply.cached_len is not None:
            assert reply.uid not in self.cached_len, f"uid {reply.uid} was told twice what was cached"
            self.cached_len[reply.uid] = reply.cached_len
        if reply.queue_s is not None:
            self.queue_s[reply.uid] = reply.queue_s
        if reply.explanation is not None:
            assert reply.uid not in self.explanations, f"uid {reply.uid} was explained twice"
            self.explanations[reply.uid] = reply.explanation
            assert sum(reply.explanation.causes.values()) == len(self.prompts[reply.uid])
        if reply.finish_reason is not None:
            self.finished[reply.uid] = reply
