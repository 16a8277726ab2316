"""From a batch to what the forward pass reads: token ids, positions and slots.

Shape letters: T tokens in the batch, B requests, R page-table rows, P pages a row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from minisgl.core import Batch, PageTableUpdate, Staging
from minisgl.utils.arrays import Int32Array


class StepInputs(NamedTuple):
    """Tensors of int32 on the device. A batch padded to `padded` tokens has T = padded, and B = padded or all rows.

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

    def slots(self, table_idxs: Int32Array, positions: Int32Array) -> Int32Array:
        """The slot of each position [N] of the row beside it [N]."""
        if self.page_size == 1:
            slots: Int32Array = self.host[table_idxs, positions]
            return slots
        pages, offsets = np.divmod(positions, np.int32(self.page_size))
        slots = self.host[table_idxs, pages]
        slots *= np.int32(self.page_size)
        slots += offsets
        return slots


def stage_cells(update: PageTableUpdate, staging: Staging, padded: int | None = None) -> PageTableCells:
    """The changed cells of the page table, which will lie on the device once the step is sent; row -1 is padding."""
    rows = staging.add(update.rows, padded, fill=-1)
    return PageTableCells(rows, staging.add(update.cols, padded), staging.add(update.pages, padded))


def stage_inputs(batch: Batch, table: PageTable, staging: Staging, padded: int | None = None) -> StepInputs:
    """The inputs of a batch, which will lie on the device once the step is sent. padded: to so many tokens."""
    extend_lens = batch.extend_lens
    ends = extend_lens.cumsum(dtype=np.int32)
    starts = ends - extend_lens
    positions = np.arange(ends[-1], dtype=np.int32) - (starts - batch.cached_lens).repeat(extend_lens)
    slots = table.slots(batch.table_idxs.repeat(extend_lens), positions)
    ids = np.zeros(len(positions), np.int32)
    for row in np.flatnonzero((extend_lens > 1) | (batch.prev_rows < 0)).tolist():
        req = batch.reqs[row]
        known = req.input_ids[req.cached_len : req.device_len]
        ids[starts[row] : starts[row] + len(known)] = known
    most_rows = None if padded is None else min(padded, len(table.host))
    return StepInputs(
        input_ids=staging.add(ids, padded),
        positions=staging.add(positions, padded),
        out_loc=staging.add(slots, padded, fill=-1),
        last=staging.add(ends - 1, most_rows),
        prev_rows=staging.add(batch.prev_rows, most_rows, fill=-1),
    )


def stage_decodes(
    batch: Batch, table: PageTable, staging: Staging, padded: int, row_numbers: torch.Tensor
) -> StepInputs:
    """The same for rows that compute one token each, padded. row_numbers: 0, 1, 2 ... on the device."""
    positions = batch.cached_lens
    ids = np.zeros(len(positions), np.int32)
    for row in np.flatnonzero(batch.prev_rows < 0).tolist():
        ids[row] = batch.reqs[row].input_ids[positions[row]]
    return StepInputs(
        input_ids=staging.add(ids, padded),
        positions=staging.add(positions, padded),
        out_loc=staging.add(table.slots(batch.table_idxs, positions), padded, fill=-1),
        last=row_numbers[:padded],
        prev_rows=staging.add(batch.prev_rows, padded, fill=-1),
    )
