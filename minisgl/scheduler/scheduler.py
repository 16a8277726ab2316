"""Which tokens are computed next, and what becomes of the results. Host only: no tensor is touched here.

    batch = scheduler.plan()        admit, match, lock, allocate, choose
    output = forward(batch)
    scheduler.commit(batch, output) append, insert into the tree, finish, release

`plan` may be called once more before the last batch is committed (overlap): it counts on every launched batch to
run, and names rows of the previous output for tokens that are not known yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from minisgl.core import Batch, BatchResult, Limits, Req
from minisgl.core.arrays import NO_IDS, Int32Array
from minisgl.core.reqs import Reqs
from minisgl.env import ENV
from minisgl.kvcache.base import Namespace
from minisgl.message import (
    AbortMsg,
    EngineStats,
    FinishMsg,
    FinishReason,
    NextTokens,
    Question,
    Reply,
    RequestMsg,
    TokenReply,
    UserMsg,
)
from minisgl.scheduler.admission import Admission
from minisgl.scheduler.cache_manager import CacheManager
from minisgl.scheduler.counters import Counters
from minisgl.scheduler.grouping import Grouping
from minisgl.scheduler.planner import Planner
from minisgl.scheduler.questions import answer
from minisgl.scheduler.request import Request, RequestState
from minisgl.scheduler.reserve import RESERVES
from minisgl.scheduler.rows import RowIndex


def _nothing_in_flight() -> None:
    """Without overlap every launched batch is committed before the next plan."""


class Scheduler:
    """Owns every request's progress. A prompt longer than the budget goes in chunks.

    max_extend_tokens: prompt tokens a batch may compute. end_token_ids: the model's own.
    alternates: a batch of whole prompts holds no decodes if the batch before it did (no overlap only); otherwise
    decodes ride along with every prefill, so a running request gets a token at least every other step.
    shared_prefix: whether batches say which of their rows begin with the same pages.
    reserve: how many pages a request is promised, a name of RESERVES. policy, max_overtakes, lookahead: as Admission's.
    """

    def __init__(
        self,
        cache_manager: CacheManager,
        limits: Limits,
        max_extend_tokens: int,
        end_token_ids: frozenset[int] = frozenset(),
        alternates: bool = True,
        *,
        shared_prefix: bool = True,
        reserve: str = "estimate",
        policy: str = "fcfs",
        max_overtakes: int = 64,
        lookahead: int = 256,
    ) -> None:
        self.cache_manager = cache_manager
        self.limits = limits
        self.end_token_ids = end_token_ids
        estimates = RESERVES[reserve]()
        self._admission = Admission(cache_manager, estimates, policy, max_overtakes, lookahead)
        self._admitted: dict[int, Request] = {}  # until their pages are released
        self._rows = cache_manager.rows
        self._counters = Counters()
        self._planner = Planner(
            cache_manager, self._admission, self._admitted, self._counters, estimates, max_extend_tokens, alternates
        )
        self._grouping = Grouping(cache_manager) if shared_prefix else None
        self._ends: set[int] = set()  # tokens that end the text of some request
        self._replies: list[Reply] = []
        self._step = 0

    @property
    def has_work(self) -> bool:
        return bool(self._admission or self._admitted)

    def check_integrity(self) -> None:
        """Recount what the cache manager and the queue hold; AssertionError naming what is wrong."""
        self.cache_manager.check_integrity()
        self._admission.check_integrity()

    # ---- messages in, replies out

    def receive(self, messages: Iterable[RequestMsg]) -> None:
        """Take in new requests, aborts and finishes. Anything wrong with one request is answered to it alone."""
        for msg in messages:
            if isinstance(msg, UserMsg):
                self._submit(msg)
            elif isinstance(msg, AbortMsg):
                self._end(msg.uid, RequestState.ABORTED, "abort")
            elif isinstance(msg, FinishMsg):
                self._finish_at(msg)
            elif isinstance(msg, Question):
                self._replies.append(answer(msg, self))

    def abort_all(self) -> None:
        """Abort every request; launched batches still have to be committed."""
        for uid in [*self._admission.uids, *self._admitted]:
            self._end(uid, RequestState.ABORTED, "abort")

    def take_replies(self) -> list[Reply]:
        """Replies since the last call, in order."""
        replies, self._replies = self._replies, []
        return replies

    def stats(self) -> EngineStats:
        """Sizes now and totals since the start."""
        num_running = sum(request.is_running for request in self._admitted.values())
        return self._counters.with_sizes(self.cache_manager, num_running, len(self._admission))

    def count_host_time(self, seconds: float) -> None:
        """So long the host has worked for a step: for `stats`, nothing is decided by it."""
        self._counters.host_s += seconds

    # ---- plan

    def plan(self, settle: Callable[[], None] = _nothing_in_flight) -> Batch | None:
        """The next batch, or None when nothing can run now.

        settle: commits the batch in flight. Called when pages run out, as nobody in flight can be retracted.
        """
        work = self._planner.choose(settle)
        lineup = work.lineup
        if not lineup:
            return None
        columns = self._rows.launch(lineup.table_idxs, work.counts)
        for request, _ in work.prompts:
            request.launched()
        groups = self._grouping.of(lineup) if self._grouping is not None else ()
        batch = Batch(Reqs(lineup.members, columns), self.cache_manager.take_update(), self._step, groups)
        if ENV.CHECK_INTEGRITY.value:
            batch.check_integrity()
        self._step += 1
        self._counters.num_batches += 1
        return batch

    # ---- commit

    def commit(self, batch: Batch, result: BatchResult) -> None:
        """Take in what a launched batch produced; batches are committed in the order in which they were planned."""
        self.cache_manager.committed(batch.step)
        table_idxs = batch.table_idxs.astype(np.intp)
        self._rows.committed_len[table_idxs] = batch.device_lens
        for row in self._append_all(table_idxs, result):
            self._commit_row(row, batch.reqs[row], result)
        if ENV.CHECK_INTEGRITY.value:
            self.check_integrity()

    def _append_all(self, table_idxs: RowIndex, result: BatchResult) -> list[int]:
        """Take in the tokens of rows of which nothing else is to be said, most of hundreds; which rows are left."""
        rows, tokens, ends = self._rows, result.next_tokens, self._ends
        token_ids = tokens.tolist()
        is_easy = rows.num_ids[table_idxs] < rows.appends_below[table_idxs]
        if result.errors:
            is_easy[list(result.errors)] = False
        if not ends.isdisjoint(token_ids):
            is_easy &= [token_id not in ends for token_id in token_ids]
        left: list[int] = []
        if not is_easy.all():
            left = (~is_easy).nonzero()[0].tolist()
            table_idxs, tokens = table_idxs[is_easy], tokens[is_easy]
            token_ids = tokens.tolist()
        rows.append(table_idxs, tokens)
        if token_ids:
            self._replies.append(NextTokens(rows.uid[table_idxs].tolist(), token_ids))
        self._counters.generated_tokens += len(token_ids)
        return left

    def _commit_row(self, row: int, req: Req, result: BatchResult) -> None:
        request, error = self._admitted[req.uid], result.errors.get(row)
        if error is not None:
            request.storable = False
        if request.is_over:
            if not request.is_in_flight:
                self._release(request)
        elif error is not None:
            self._close(request, RequestState.FINISHED, request.reply((), "error", error=error))
        elif not req.is_prefill or self._take_prompt(request, req, row, result):
            reply = request.append(int(result.next_tokens[row]), result.logprobs[row] if result.logprobs else None)
            self._counters.generated_tokens += 1
            if reply.finish_reason is None:
                self._replies.append(reply)
            else:
                self._close(request, RequestState.FINISHED, reply)

    def _take_prompt(self, request: Request, req: Req, row: int, result: BatchResult) -> bool:
        """Its prompt, or a part of it, is computed; whether a token was sampled after it."""
        self._counters.computed_tokens += min(req.device_len, req.prefill_len) - req.cached_len
        self._store_prompt(request)
        if result.prompt_logprobs:
            request.take_prompt_logprobs(req.cached_len + 1, result.prompt_logprobs[row])
        if req.device_len == req.max_device_len:  # max_tokens=0: only the prompt was asked about
            self._close(request, RequestState.FINISHED, request.reply((), "length"))
        return req.samples

    def _store_prompt(self, request: Request) -> None:
        assert request.allocation is not None
        last_step = self._step - 1 if request.is_in_flight else -1
        self.cache_manager.store(request.allocation, request.ids(request.committed_len), last_step)

    # ---- ends

    def _submit(self, msg: UserMsg) -> None:
        assert self._find(msg.uid) is None, f"uid {msg.uid} is in use"
        try:
            self.limits.check(msg.input_ids, msg.sampling_params)
        except ValueError as error:
            self._replies.append(TokenReply(msg.uid, finish_reason="error", error=str(error)))
            self._counters.ended("error")
            return
        params = msg.sampling_params
        model_ends = frozenset() if params.ignore_eos else self.end_token_ids
        request = Request(
            uid=msg.uid,
            prompt=msg.input_ids,
            sampling_params=params,
            seed=msg.seed,
            end_token_ids=model_ends | frozenset(params.stop_token_ids),
            max_device_len=self.limits.max_device_len(len(msg.input_ids), params),
            namespace=Namespace(msg.cache_salt),
            priority=msg.priority,
        )
        self._ends |= request.end_token_ids
        self._admission.add(request)

    def _end(self, uid: int, state: RequestState, reason: FinishReason) -> None:
        request = self._find(uid)
        if request is not None and not request.is_over:
            self._close(request, state, request.reply((), reason))

    def _find(self, uid: int) -> Request | None:
        return self._admission.find(uid) or self._admitted.get(uid)

    def _finish_at(self, msg: FinishMsg) -> None:
        request = self._find(msg.uid)
        if request is None:
            return
        request.truncate(msg.num_tokens)
        if not request.is_over:
            self._close(request, RequestState.FINISHED, None)

    def purge(self, namespace: Namespace | None = None, prefix: Int32Array = NO_IDS) -> int:
        """Nothing cached until now that begins with `prefix` in `namespace` (None: in any) is matched again.

        Running requests that begin so go on, and store nothing any more, nor do those that are over but in flight.
        Returns the number of tokens freed at once; what they hold is freed with their end.
        """
        stale = [request for request in self._admitted.values() if request.begins_with(namespace, prefix)]
        allocations = [request.allocation for request in stale if request.allocation]
        return self.cache_manager.purge(allocations, namespace, prefix)

    def _close(self, request: Request, state: RequestState, reply: TokenReply | None) -> None:
        """The request is over. Its pages go back now, or with the commit of its last launched batch."""
        request.close(state)
        self._planner.changed()
        if state is RequestState.FINISHED and (reply is None or reply.finish_reason != "error"):
            self._planner.finished(request)
        self._counters.ended((reply and reply.finish_reason) or "stop")
        if reply is not None:
            self._replies.append(reply)
        if not self._admission.remove(request.uid) and not request.is_in_flight:
            self._release(request)

    def _release(self, request: Request) -> None:
        del self._admitted[request.uid]
        assert request.allocation is not None
        known = min(request.committed_len, request.num_ids) if request.storable else 0
        self.cache_manager.release(request.allocation, request.ids(known))
