"""What the loop did turn by turn, for people: kept only while somebody looks or a trace is written."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping

from minisgl.core.reqs import Columns
from minisgl.message import Sizes, StepRecord
from minisgl.message.activity import pack_uids
from minisgl.scheduler.admission import Admission
from minisgl.scheduler.cache_manager import CacheManager
from minisgl.scheduler.request import Request
from minisgl.scheduler.work import Work

KEPT_STEPS = 512
KEPT_S = 30.0  # after the last question
MAX_NAMED = 1024  # requests that came, or ended, in a step's record; of the others no more can run
PLAN, LAUNCH, WAIT, COMMIT = range(4)
Sink = Callable[[StepRecord], None]


class Turn:
    """A turn of the loop that goes on. Its parts are told of when they are over, so together they take all its time.

    step: its number. batch_step: of the batch that it launched, -1 if there is none. sizes: at its end.
    """

    __slots__ = (
        "_mark", "aborted", "admitted", "arrived", "batch_step", "begin", "decodes", "device_s", "finished",
        "has_settled", "is_committed", "prefills", "retracted", "settled_s", "sizes", "spent", "step",
    )  # fmt: skip

    def __init__(self, step: int, begin: float) -> None:
        self.step = step
        self.begin = self._mark = begin
        self.spent = [0.0, 0.0, 0.0, 0.0]
        self.settled_s: float | None = None
        self.batch_step = -1
        self.has_settled = self.is_committed = False  # any batch, and its own
        self.sizes: Sizes
        self.device_s: tuple[float, float] | None = None
        self.prefills: tuple[tuple[int, int, int], ...] = ()
        self.decodes = b""
        self.arrived: list[tuple[int, float, int]] = []
        self.admitted: list[int] = []
        self.retracted: list[int] = []
        self.finished: list[int] = []
        self.aborted: list[int] = []

    @property
    def has_news(self) -> bool:
        """Whether it did anything but look for messages and answer questions."""
        return bool(self.batch_step >= 0 or self.has_settled or self.arrived or self.finished)

    def passed(self, part: int, now: float | None = None) -> None:
        """What was done since the last call was this."""
        now = time.perf_counter() if now is None else now
        self.spent[part] += now - self._mark
        self._mark = now


class Recorder:
    """Costs nothing until it is asked. `turn` is None while nothing is recorded."""

    def __init__(
        self, manager: CacheManager, admission: Admission, admitted: Mapping[int, Request], started_at: float
    ) -> None:
        """The scheduler's. started_at: when its clock was 0."""
        self.turn: Turn | None = None
        self._manager = manager
        self._admission = admission
        self._admitted = admitted
        self.started_at = started_at
        self._sink: Sink | None = None
        self._kept_until = 0.0
        self._kept: deque[StepRecord] = deque(maxlen=KEPT_STEPS)
        self._open: Turn | None = None  # whose batch is not committed
        self._num_steps = 0
        self._num_evicted = 0

    def send_to(self, sink: Sink) -> None:
        """From now on `sink` is given every record, in order, whoever else asks for them."""
        self._sink, self._kept_until = sink, math.inf

    def since(self, step: int) -> tuple[list[StepRecord], int]:
        """The kept records from that step on, and the step to go on with. Those to come are kept for a while."""
        if not self._kept_until:
            self._num_evicted = self._manager.num_evicted_pages
        self._kept_until = max(self._kept_until, time.perf_counter() + KEPT_S)
        next_step = self._num_steps - (self._open is not None)
        return [record for record in self._kept if record.step >= step], next_step

    # ---- the loop's

    def begin(self, now: float) -> Turn | None:
        """A turn begins. What is returned, and is `turn` until `end`, is None if nobody wants to know of it."""
        if self._kept_until:
            if now <= self._kept_until:
                self.turn = Turn(self._num_steps, now)
            else:
                self._stop()
        return self.turn

    def settled(self, batch_step: int, before: float, after: float, device_s: tuple[float, float] | None) -> None:
        """The batch of that step is committed; its results were waited for from `before` to `after`."""
        turn = self.turn
        if turn is None:
            return
        is_planning = turn.spent[PLAN] == 0.0
        turn.passed(PLAN, before)
        if is_planning:
            turn.settled_s = turn.spent[PLAN]
        turn.passed(WAIT, after)
        turn.passed(COMMIT)
        turn.has_settled = True
        if batch_step == turn.batch_step:
            turn.is_committed, turn.device_s = True, device_s
        elif self._open is not None and self._open.batch_step == batch_step:
            self._open.device_s = device_s
            self._keep(self._open)
            self._open = None

    def end(self) -> None:
        """The turn is over."""
        if (turn := self.turn) is None:
            return
        self.turn = None
        turn.passed(COMMIT)
        if not turn.has_news:
            return
        turn.sizes = self._sizes()
        self._num_steps += 1
        if turn.batch_step >= 0 and not turn.is_committed:
            self._open = turn
        else:
            self._keep(turn)

    # ---- the scheduler's

    def planned(self, batch_step: int, work: Work, columns: Columns) -> None:
        """Its batch is this."""
        if (turn := self.turn) is None:
            return
        num_decodes = len(work.lineup) - len(work.prompts)
        uids = self._manager.rows.uid[work.lineup.table_idxs]
        turn.batch_step = batch_step
        turn.decodes = pack_uids(uids[:num_decodes])
        if work.prompts:
            spans = (values[num_decodes:].tolist() for values in (uids, columns.cached_lens, columns.device_lens))
            turn.prefills = tuple(zip(*spans, strict=True))

    def arrived(self, request: Request) -> None:
        if self.turn is not None and len(self.turn.arrived) < MAX_NAMED:
            self.turn.arrived.append((request.uid, request.arrived_at, request.prompt_len))

    def admitted(self, uid: int) -> None:
        if self.turn is not None:
            self.turn.admitted.append(uid)

    def retracted(self, uid: int) -> None:
        if self.turn is not None:
            self.turn.retracted.append(uid)

    def ended(self, uid: int, is_aborted: bool) -> None:
        if self.turn is not None and len(self.turn.finished) < MAX_NAMED:
            self.turn.finished.append(uid)
            if is_aborted:
                self.turn.aborted.append(uid)

    # ---- inside

    def _record(self, turn: Turn) -> StepRecord:
        return StepRecord(
            step=turn.step,
            begin_s=turn.begin - self.started_at,
            plan_s=turn.spent[PLAN],
            launch_s=turn.spent[LAUNCH],
            wait_s=turn.spent[WAIT],
            commit_s=turn.spent[COMMIT],
            settled_s=turn.settled_s,
            device_s=self._on_clock(turn.device_s),
            prefills=turn.prefills,
            decodes=turn.decodes,
            arrived=tuple((uid, at - self.started_at, length) for uid, at, length in turn.arrived),
            admitted=tuple(turn.admitted),
            retracted=tuple(turn.retracted),
            finished=tuple(turn.finished),
            aborted=tuple(turn.aborted),
            sizes=turn.sizes,
        )

    def _sizes(self) -> Sizes:
        manager, before = self._manager, self._num_evicted
        cached, size = manager.prefix_cache.size_info, manager.page_size
        self._num_evicted = manager.num_evicted_pages
        return Sizes(
            free_tokens=manager.num_free_pages * size,
            evictable_tokens=cached.evictable_size,
            protected_tokens=cached.protected_size,
            evicted_tokens=(self._num_evicted - before) * size,
            num_running=len(self._admitted),
            num_waiting=len(self._admission),
        )

    def _on_clock(self, device_s: tuple[float, float] | None) -> tuple[float, float] | None:
        return None if device_s is None else (device_s[0] - self.started_at, device_s[1] - self.started_at)

    def _keep(self, turn: Turn) -> None:
        record = self._record(turn)
        self._kept.append(record)
        if self._sink is not None:
            self._sink(record)

    def _stop(self) -> None:
        """Nobody has asked for a while. The step that is left out shows whoever comes back that some are missing."""
        self._kept_until = 0.0
        self._kept.clear()
        self._open = None
        self._num_steps += 1
