"""What rank 0 tells the ranks that compute with it, one message a step, and what they say to it.

A plan holds what the batches before cannot have told: a request is introduced once, then each step brings five numbers
for it and the tokens that are new. What was told is kept by row of the page table: a row has one request at a time, so
nobody need say when a request is over.
"""

from __future__ import annotations

import msgspec
import numpy as np

from minisgl.core import Batch, PageTableUpdate, PrefixGroup
from minisgl.core.req import Admitted, Member
from minisgl.core.reqs import Columns, Reqs
from minisgl.message.types import ShutdownMsg
from minisgl.message.wire import Codec
from minisgl.utils.arrays import NO_IDS, Int32Array


class PlanMsg(msgspec.Struct, frozen=True, array_like=True, eq=False):
    """One batch. groups: None if they are those of the batch before.

    rows: [5 * B]: table_idx, cached_len, device_len, prev_row of each request, and how many of new_ids are its own.
    cells: [3 * U]: rows, columns and pages of the cells of the page table that changed.
    """

    step: int
    rows: Int32Array
    new_ids: Int32Array
    cells: Int32Array
    newcomers: tuple[Admitted, ...]
    groups: tuple[PrefixGroup, ...] | None


class JoinMsg(msgspec.Struct, frozen=True):
    """All are there: meet at this port, then load."""

    port: int


class GoOnMsg(msgspec.Struct, frozen=True):
    """No rank had memory for this step, and all stopped at the same collective: forget it, and go on."""

    step: int


class RankStarted(msgspec.Struct, frozen=True):
    """It can be told to join."""

    rank: int


class RankFailed(msgspec.Struct, frozen=True):
    """The last word of a rank. by_user: a wrong option or model; otherwise it broke."""

    rank: int
    error: str
    by_user: bool = False


class BatchFailed(msgspec.Struct, frozen=True):
    """A rank had no memory for this step, and stopped after so many collectives; it waits to be told to go on."""

    rank: int
    step: int
    num_calls: int


RankOrder = PlanMsg | JoinMsg | GoOnMsg | ShutdownMsg
RankNews = RankStarted | RankFailed | BatchFailed


def order_codec() -> Codec[RankOrder]:
    """For what goes to the other ranks."""
    return Codec(PlanMsg, JoinMsg, GoOnMsg, ShutdownMsg)


def rank_news_codec() -> Codec[RankNews]:
    """For what comes from them."""
    return Codec(RankStarted, RankFailed, BatchFailed)


class PlanWriter:
    """Batches to messages, in order. Remembers of each row whose it is, and how many tokens were told."""

    def __init__(self) -> None:
        self._told: dict[int, tuple[int, int, int]] = {}  # by row: uid, prefill_len, tokens
        self._groups: tuple[PrefixGroup, ...] | None = None

    def write(self, batch: Batch) -> PlanMsg:
        newcomers, new_ids, counts = [], [NO_IDS], []
        for req in batch.reqs:
            uid, prefill_len, known = self._told.get(req.table_idx, (-1, 0, 0))
            if uid != req.uid or prefill_len != req.prefill_len:  # another request, or this one admitted once more
                newcomers.append(Admitted.of(req))
                known = 0
            ids = req.input_ids
            self._told[req.table_idx] = req.uid, req.prefill_len, len(ids)
            counts.append(len(ids) - known)
            new_ids.append(ids[known:])
        rows = [batch.table_idxs, batch.cached_lens, batch.device_lens, batch.prev_rows, np.array(counts, np.int32)]
        update = batch.page_table_update
        groups, self._groups = None if batch.groups is self._groups else batch.groups, batch.groups
        return PlanMsg(
            batch.step,
            np.concatenate(rows),
            np.concatenate(new_ids),
            np.concatenate([update.rows, update.cols, update.pages]),
            tuple(newcomers),
            groups,
        )


class PlanReader:
    """Messages of one `PlanWriter` back to its batches: every one must be read, in order."""

    def __init__(self) -> None:
        self._members: dict[int, Member] = {}  # by row
        self._num_ids: dict[int, int] = {}
        self._lineup: tuple[Member, ...] = ()  # of the last batch
        self._groups: tuple[PrefixGroup, ...] = ()

    def read(self, plan: PlanMsg) -> Batch:
        for newcomer in plan.newcomers:
            ids = np.empty(newcomer.max_device_len, np.int32)
            self._members[newcomer.table_idx] = Member(**msgspec.structs.asdict(newcomer), ids=ids)
            self._num_ids[newcomer.table_idx] = 0
        *columns, counts = plan.rows.reshape(5, -1)
        reqs = Reqs(self._take_ids(columns[0].tolist(), counts.tolist(), plan.new_ids), Columns(*columns))
        self._groups = self._groups if plan.groups is None else plan.groups
        return Batch(reqs, PageTableUpdate(*plan.cells.reshape(3, -1)), plan.step, self._groups)

    def _take_ids(self, table_idxs: list[int], counts: list[int], new_ids: Int32Array) -> tuple[Member, ...]:
        """Each row takes its own of the new ids; whose rows they are."""
        begin = 0
        for table_idx, count in zip(table_idxs, counts, strict=True):
            known = self._num_ids[table_idx]
            self._members[table_idx].ids[known : known + count] = new_ids[begin : begin + count]
            self._num_ids[table_idx] = known + count
            begin += count
        lineup = tuple([self._members[table_idx] for table_idx in table_idxs])
        if lineup != self._lineup:  # the same object says that no row changed
            self._lineup = lineup
        return self._lineup
