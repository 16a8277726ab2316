"""Pages that running requests lack for the tokens that they compute next."""

from __future__ import annotations

from typing import NamedTuple

from minisgl.scheduler.rows import RowIndex, Rows
from minisgl.utils.arrays import Int32Array


class Growth(NamedTuple):
    """Pages that rows of the page table [N] lack: they hold `held` and want `wanted`, which is more. total: of all."""

    table_idxs: RowIndex
    held: Int32Array
    wanted: Int32Array
    total: int

    @classmethod
    def of(cls, rows: Rows, page_size: int, table_idxs: RowIndex, counts: Int32Array) -> Growth:
        """What these rows lack to compute so many tokens more."""
        held = rows.num_pages[table_idxs]
        wanted = -(-(rows.device_len[table_idxs] + counts) // page_size)
        lacks = wanted > held
        if not lacks.all():
            table_idxs, held, wanted = table_idxs[lacks], held[lacks], wanted[lacks]
        return cls(table_idxs, held, wanted, int((wanted - held).sum()))

    def short(self, rows: Rows) -> RowIndex:
        """Those that are promised less than they want."""
        short: RowIndex = self.table_idxs[self.wanted > rows.promised_pages[self.table_idxs]]
        return short
