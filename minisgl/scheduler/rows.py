"""What changes of running requests at every step, as arrays: a step of hundreds of decodes is a few operations on them.

Shape letters: R rows of the page table, each of at most one running request; N rows of a batch.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from minisgl.core.reqs import Columns
from minisgl.utils.arrays import Int32Array

RowIndex = npt.NDArray[np.intp]  # NumPy takes numbers of this type five times as fast as others


class Rows:
    """By row of the page table; what is in the rows of nobody means nothing. Each [R] int32, but for ids and uid.

        0 ...... committed_len ...... device_len ...... num_ids (a decode: at most one ahead of device_len)
        |  KV computed  |  launched, in flight  |  known, not launched  |

    Under overlap device_len may be num_ids: the token at that position is still on the device, in row `batch_row` of
    the batch launched last.
    num_pages, promised_pages: see `Allocation`. ids: [R, max_seq_len], the tokens. uid: [R] int64.
    max_device_len: the request's. appends_below: while fewer tokens than this are known, the next one is taken in
    together with those of others, for it is not the last one for want of room, and nothing else is to be done for it.
    """

    def __init__(self, num_rows: int, max_seq_len: int) -> None:
        columns: Int32Array = np.zeros((8, num_rows), np.int32)  # together, so that a step finds them close by
        self.num_pages, self.promised_pages, self.max_device_len, self.appends_below = columns[:4]
        self.committed_len, self.device_len, self.num_ids, self.batch_row = columns[4:]
        self.uid = np.zeros(num_rows, np.int64)
        self.ids = np.empty((num_rows, max_seq_len), np.int32)

    def launch(self, rows: RowIndex, counts: Int32Array) -> Columns:
        """The next `counts` [N] tokens of `rows` [N] are computed by one batch, which these are the columns of."""
        cached_lens = self.device_len[rows]
        device_lens = cached_lens + counts
        prev_rows = self.batch_row[rows]
        prev_rows[device_lens <= self.num_ids[rows]] = -1
        self.device_len[rows] = device_lens
        self.batch_row[rows] = np.arange(len(rows), dtype=np.int32)
        return Columns(rows.astype(np.int32), cached_lens, device_lens, prev_rows)

    def append(self, rows: RowIndex, token_ids: Int32Array) -> None:
        """One more token [N] of each of `rows` [N] is known."""
        num_ids = self.num_ids[rows]
        self.ids[rows, num_ids] = token_ids
        self.num_ids[rows] = num_ids + 1
