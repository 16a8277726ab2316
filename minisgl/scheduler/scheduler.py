"""Which tokens are computed next, and what becomes of the results. Host only: no tensor is touched here.

    batch = scheduler.plan()        admit, match, lock, allocate, choose
    output = forward(batch)
    scheduler.commit(batch, output) append, insert into the tree, finish, release

`plan` may be called once more before the last batch is committed (overlap): it counts on every launched batch to
run, and names rows of the previous output for tokens that are not known yet.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from minisgl.core import CAUSES, Batch, BatchResult, Limits
from minisgl.core.reqs import Reqs
from minisgl.env import ENV
from minisgl.kvcache.capacity_curve import CapacityCurve
from minisgl.kvcache.types import Namespace
from minisgl.message import AbortMsg, EngineStats, FinishMsg, Question, Reply, RequestMsg, SlowQuestion, UserMsg
from minisgl.scheduler.admission import Admission
from minisgl.scheduler.cache_manager import CacheManager
from minisgl.scheduler.committer import Committer
from minisgl.scheduler.counters import Counters
from minisgl.scheduler.endings import Endings
from minisgl.scheduler.grouping import Grouping
from minisgl.scheduler.inquiries import Inquiries
from minisgl.scheduler.planner import Planner
from minisgl.scheduler.questions import answer, inquire
from minisgl.scheduler.recorder import Recorder
from minisgl.scheduler.request import Request
from minisgl.scheduler.reserve import RESERVES
from minisgl.scheduler.waiting import Waiting
from minisgl.utils.arrays import NO_IDS, Int32Array


def _nothing_in_flight() -> None:
    """Without overlap every launched batch is committed before the next plan."""


class Scheduler:
    """Owns every request's progress. A prompt longer than the budget goes in chunks.

    max_extend_tokens: prompt tokens a batch may compute. end_token_ids: the model's own.
    alternates: a batch of whole prompts holds no decodes if the batch before it did (no overlap only); otherwise
    decodes ride along with every prefill, so a running request gets a token at least every other step.
    shared_prefix: whether batches say which of their rows begin with the same pages.
    reserve: how many pages a request is promised, a name of RESERVES. policy, max_overtakes, lookahead: as Admission's.
    curve: estimates what pools of other sizes would hit; None: nobody wants to know.
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
        curve: CapacityCurve | None = None,
    ) -> None:
        self.cache_manager = cache_manager
        self.limits = limits
        self.end_token_ids = end_token_ids
        estimates = RESERVES[reserve]()
        self._admission = Admission(cache_manager, estimates, policy, max_overtakes, lookahead)
        self._admitted: dict[int, Request] = {}  # until their pages are released
        self._counters = counters = Counters(curve, causes=dict.fromkeys(CAUSES, 0) if cache_manager.explains else {})
        self._replies: list[Reply] = []
        self.has_announced = False  # whether some reply is better sent before the batch is computed
        self.recorder = Recorder(cache_manager, self._admission, self._admitted, counters.started_at)
        self._planner = Planner(
            cache_manager,
            self._admission,
            self._admitted,
            counters,
            self.recorder,
            estimates,
            max_extend_tokens,
            alternates,
        )
        self._endings = Endings(
            cache_manager, self._admission, self._admitted, self._planner, counters, self.recorder, self._replies
        )
        self._committer = Committer(cache_manager, self._admitted, self._endings, counters, self._replies)
        self._grouping = Grouping(cache_manager) if shared_prefix else None
        self._inquiries = Inquiries()
        self._step = 0

    @property
    def has_work(self) -> bool:
        return bool(self._admission or self._admitted)

    @property
    def admitted(self) -> Mapping[int, Request]:
        """By uid, in order of admission: those that run, and those that are over but in flight."""
        return self._admitted

    @property
    def waiting(self) -> Collection[Waiting]:
        """Those that wait, as they came."""
        return self._admission.waiting

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
                self._endings.abort(msg.uid)
                self._inquiries.drop(msg.uid)
            elif isinstance(msg, FinishMsg):
                self._endings.finish_at(msg.uid, msg.num_tokens)
            elif isinstance(msg, SlowQuestion):
                self._inquiries.add(msg.uid, partial(inquire, msg, self))
            elif isinstance(msg, Question):
                self._replies.append(answer(msg, self))

    @property
    def is_asked(self) -> bool:
        """Whether somebody waits for an answer that `work_on_answers` makes."""
        return bool(self._inquiries)

    def work_on_answers(self) -> None:
        """A millisecond or two of what questions that take longer need."""
        reply = self._inquiries.advance()
        if reply is not None:
            self._replies.append(reply)

    def abort_all(self) -> None:
        """Abort every request; launched batches still have to be committed."""
        for uid in [*self._admission.uids, *self._admitted]:
            self._endings.abort(uid)

    def take_replies(self) -> list[Reply]:
        """Replies since the last call, in order."""
        replies = self._replies.copy()
        self._replies.clear()
        self.has_announced = False
        return replies

    def stats(self) -> EngineStats:
        """Sizes now and totals since the start."""
        num_running = sum(request.is_running for request in self._admitted.values())
        return self._counters.with_sizes(self.cache_manager, num_running, len(self._admission))

    def count_host_time(self, seconds: float) -> None:
        """So long the host has worked for a step: for `stats`, nothing is decided by it."""
        self._counters.host_s += seconds

    def purge(self, namespace: Namespace | None = None, prefix: Int32Array = NO_IDS) -> int:
        """Nothing cached until now that begins with `prefix` in `namespace` (None: in any) is matched again.

        Running requests that begin so go on, and store nothing of it any more, nor do those that are over but in
        flight; one that gives up its pages computes them anew, as those that wait do, and stores that.
        Returns the number of tokens freed at once; what they hold is freed with their end.
        """
        stale = [request for request in self._admitted.values() if request.begins_with(namespace, prefix)]
        allocations = [request.allocation for request in stale if request.allocation]
        if namespace is None and len(prefix) == 0:
            self._counters.all_purged()
        self._inquiries.begin_again()
        return self.cache_manager.purge(allocations, namespace, prefix)

    def _submit(self, msg: UserMsg) -> None:
        assert self._endings.find(msg.uid) is None, f"uid {msg.uid} is in use"
        try:
            self.limits.check(msg.input_ids, msg.sampling_params)
        except ValueError as error:
            self._endings.refuse(msg.uid, str(error))
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
            announces=msg.explain,
        )
        self._endings.expect(request)
        self._admission.add(request)
        self.recorder.arrived(request)

    def _announce(self, request: Request) -> None:
        self._replies.append(request.announce())
        self.has_announced = True

    # ---- plan

    def plan(self, settle: Callable[[], None] = _nothing_in_flight) -> Batch | None:
        """The next batch, or None when nothing can run now.

        settle: commits the batch in flight. Called when pages run out, as nobody in flight can be retracted.
        """
        work = self._planner.choose(settle)
        lineup = work.lineup
        if not lineup:
            return None
        columns = self.cache_manager.rows.launch(lineup.table_idxs, work.counts)
        for request, _ in work.prompts:
            request.launched()
            if request.announces and not request.is_announced:
                self._announce(request)
        groups = self._grouping.of(lineup) if self._grouping is not None else ()
        batch = Batch(Reqs(lineup.members, columns), self.cache_manager.take_update(), self._step, groups)
        if ENV.CHECK_INTEGRITY.value:
            batch.check_integrity()
        self.recorder.planned(self._step, work, columns)
        self._step += 1
        self._counters.num_batches += 1
        return batch

    # ---- commit

    def commit(self, batch: Batch, result: BatchResult) -> None:
        """Take in what a launched batch produced; batches are committed in the order in which they were planned."""
        self._committer.commit(batch, result, self._step - 1)
        if ENV.CHECK_INTEGRITY.value:
            self.check_integrity()
