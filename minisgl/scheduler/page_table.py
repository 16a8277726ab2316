"""The host's page table: one row of page numbers per running request, and the cells that the engine must be told of."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from minisgl.core import PageTableUpdate
from minisgl.scheduler.rows import RowIndex
from minisgl.utils.arrays import Int32Array

_EMPTY = np.empty(0, dtype=np.int32)


class PageTable:
    """[num_rows, row_len] int32 page numbers. Cells past a request's pages are stale and never read."""

    def __init__(self, num_rows: int, row_len: int) -> None:
        self._table = np.zeros((num_rows, row_len), dtype=np.int32)
        self._free_rows = list(range(num_rows - 1, -1, -1))
        self._written: list[tuple[RowIndex, Int32Array]] = []  # rows and columns of cells

    @property
    def num_free_rows(self) -> int:
        return len(self._free_rows)

    def take_row(self) -> int:
        return self._free_rows.pop()

    def give_row(self, table_idx: int) -> None:
        self._free_rows.append(table_idx)

    def row(self, table_idx: int) -> Int32Array:
        """[row_len] page numbers, a view."""
        row: Int32Array = self._table[table_idx]
        return row

    def write(self, table_idx: int, first_col: int, pages: Int32Array) -> None:
        col, length = np.array([[first_col], [len(pages)]], np.int32)
        self.write_all(np.array([table_idx]), col, length, pages)

    def write_all(self, table_idxs: RowIndex, first_cols: Int32Array, lengths: Int32Array, pages: Int32Array) -> None:
        """`write` for several rows, 1 or more cells each. pages: those of the first row, then of the second ..."""
        cells = table_idxs, first_cols
        if len(pages) > len(lengths):  # else, as for most decodes, these are the cells
            cells = _cells(*cells, lengths)
        self._table[cells] = pages
        self._written.append(cells)

    def take_update(self) -> PageTableUpdate:
        """Cells written since the last call. A cell written twice appears with its last value."""
        if not self._written:
            return PageTableUpdate(_EMPTY, _EMPTY, _EMPTY)
        rows, cols = self._written[0]
        if len(self._written) > 1:
            rows, cols = map(np.concatenate, zip(*self._written, strict=True))
        self._written.clear()
        return PageTableUpdate(rows.astype(np.int32), cols, self._table[rows, cols])

    def check_integrity(self, live_rows: Collection[int]) -> None:
        rows = sorted([*self._free_rows, *live_rows])
        assert rows == list(range(len(self._table))), f"free and live rows {rows} are not the {len(self._table)} rows"


def _cells(rows: RowIndex, first_cols: Int32Array, lengths: Int32Array) -> tuple[RowIndex, Int32Array]:
    """The row and the column of each of `lengths` cells in a row, for every entry of `rows`."""
    ends = lengths.cumsum(dtype=np.int32)
    cols = np.arange(ends[-1], dtype=np.int32) + (first_cols - ends + lengths).repeat(lengths)
    return rows.repeat(lengths), cols
