"""What the scheduler hands to the engine: a `Batch`, all of it frozen.

Shape letters: B requests in the batch, T tokens in the batch, U page-table cells to write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from minisgl.core.req import Req
from minisgl.core.reqs import Columns, columns_of
from minisgl.utils.arrays import Int32Array


@dataclass(frozen=True, slots=True, eq=False)
class PageTableUpdate:
    """Cells of the page table that changed since the last batch: table[rows, cols] = pages. Each [U] int32."""

    rows: Int32Array
    cols: Int32Array
    pages: Int32Array


@dataclass(frozen=True, slots=True, eq=False)
class PrefixGroup:
    """Rows of a batch whose tokens [begin, end) lie in the same pages, so that attention may read them once for all.

    rows: at least two, ascending. begin, end: multiples of the page size, within what was computed before the batch.
    """

    rows: Int32Array
    begin: int
    end: int


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Everything that the engine needs for one forward pass; complete when it is made.

    reqs: decodes first, then prefills. step: counts launched batches from 0. groups: a forest; parents come before
    children, and a child begins where its parent ends, with some of its rows.
    cached_lens, device_lens, table_idxs, prev_rows: those of the reqs, each [B] int32. extend_lens: [B], tokens that
    this batch computes for each. num_decodes: how many leading rows compute one token.
    """

    reqs: Sequence[Req]
    page_table_update: PageTableUpdate
    step: int
    groups: tuple[PrefixGroup, ...] = ()
    cached_lens: Int32Array = field(init=False)
    device_lens: Int32Array = field(init=False)
    table_idxs: Int32Array = field(init=False)
    prev_rows: Int32Array = field(init=False)
    extend_lens: Int32Array = field(init=False)
    num_decodes: int = field(init=False)

    def __post_init__(self) -> None:
        reqs = self.reqs
        columns = columns_of(reqs)
        extend_lens = columns.device_lens - columns.cached_lens
        is_longer = extend_lens > 1
        num_decodes = int(is_longer.argmax()) if is_longer.any() else len(reqs)
        values = (*columns, extend_lens, num_decodes)
        for name, value in zip((*Columns._fields, "extend_lens", "num_decodes"), values, strict=True):
            object.__setattr__(self, name, value)

    def check_integrity(self) -> None:
        """AssertionError naming a request whose part is wrong."""
        for req in self.reqs:
            req.check_integrity()

    @property
    def is_prefill(self) -> bool:
        """Whether any token that was known at its request's admission is computed in this batch."""
        return any(req.is_prefill for req in self.reqs)

    @property
    def num_tokens(self) -> int:
        """T, the tokens that the forward pass computes."""
        return int(self.extend_lens.sum())
