"""From a batch to what the forward pass reads: token ids, positions and slots.

Shape letters: T tokens in the batch, B requests, R page-table rows, P pages a row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from minisgl.core import Batch, PageTableUpdate, Staging
from minisgl.core.batch import Int32Array
from minisgl.utils.math import pad_end

IntArray = npt.NDArray[np.signedinteger]


class StepInputs(NamedTuple):
    """Tensors of int32 on the device. A batch padded to `padded` rows has T = B = padded.

    input_ids [T]: 0 where the token is still on the device. positions [T]. out_loc [T]: slots of the new tokens, -1 in
    padding. last [B]: where in T each request's last token lies. prev_rows [B]: as the requests have it, -1 in padding.
    """

    input_ids: torch.Tensor
    positions: torch.Tensor
    out_loc: torch.Tensor
    last: torch.Tensor
    prev_rows: torch.Tensor


class PageTableCells(NamedTuple):
    """A `PageTableUpdate` on the device."""

    rows: torch.Tensor
    cols: torch.Tensor
    pages: torch.Tensor


class PageTable:
    """The engine's page table [R, P] on the host, and the same one on the device: one memory where that is a CPU."""

    def __init__(self, num_rows: int, row_len: int, page_size: int, device: torch.device) -> None:
        self.host = np.zeros((num_rows, row_len), np.int32)
        self.device = torch.from_numpy(self.host).to(device)
        self.page_size = page_size

    def apply(self, update: PageTableUpdate) -> None:
        """Write the cells on the host; the device's turn is `kernel.begin_step`."""
        self.host[update.rows, update.cols] = update.pages

    def resend(self) -> None:
        """Have the device's table be the host's, after a step of which nobody knows how far it came."""
        self.device.copy_(torch.from_numpy(self.host))

    def slots(self, table_idxs: Int32Array, positions: IntArray) -> Int32Array:
        """The slot of each position [N] of the row beside it [N]."""
        pages, offsets = np.divmod(positions, self.page_size) if self.page_size > 1 else (positions, 0)
        slots: Int32Array = self.host[table_idxs, pages] * np.int32(self.page_size) + offsets
        return slots.astype(np.int32, copy=False)


def stage_cells(update: PageTableUpdate, staging: Staging, padded: int | None = None) -> PageTableCells:
    """The changed cells of the page table, which will lie on the device once the step is sent; row -1 is padding."""
    rows = update.rows if padded is None else pad_end(update.rows, padded, -1)
    return PageTableCells(*(staging.add(values, padded) for values in (rows, update.cols, update.pages)))


def stage_inputs(batch: Batch, table: PageTable, staging: Staging, padded: int | None = None) -> StepInputs:
    """The inputs of a batch, which will lie on the device once the step is sent."""
    extend_lens = batch.extend_lens
    ends = extend_lens.cumsum()
    starts = ends - extend_lens
    positions = np.arange(ends[-1]) - (starts - batch.cached_lens).repeat(extend_lens)
    table_idxs = batch.table_idxs.repeat(extend_lens)

    def stage(numbers: npt.NDArray[np.integer], fill: int) -> torch.Tensor:
        values = numbers.astype(np.int32, copy=False)
        return staging.add(values if padded is None else pad_end(values, padded, fill), padded)

    return StepInputs(
        input_ids=stage(_known_ids(batch, starts), 0),
        positions=stage(positions, 0),
        out_loc=stage(table.slots(table_idxs, positions), -1),
        last=stage(ends - 1, 0),
        prev_rows=stage(batch.prev_rows, -1),
    )


def _known_ids(batch: Batch, starts: IntArray) -> Int32Array:
    """[T]: the tokens that the host knows; 0 for one that is still on the device, which is a row's last."""
    ids = np.zeros(batch.num_tokens, np.int32)
    has_known = (batch.extend_lens > 1) | (batch.prev_rows < 0)
    for row in np.flatnonzero(has_known).tolist():
        req = batch.reqs[row]
        known = req.input_ids[req.cached_len : req.device_len]
        ids[starts[row] : starts[row] + len(known)] = known
    return ids
