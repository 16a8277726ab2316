"""All requests of one batch, as arrays of what changes of them from batch to batch.

Shape letters: B requests in the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

import numpy as np

from minisgl.core.req import Member, Req
from minisgl.utils.arrays import Int32Array


class Columns(NamedTuple):
    """What changes of each row of a batch, each [B] int32; see `Req`."""

    table_idxs: Int32Array
    cached_lens: Int32Array
    device_lens: Int32Array
    prev_rows: Int32Array

    @classmethod
    def of(cls, reqs: Sequence[Req]) -> Columns:
        names = ("table_idx", "cached_len", "device_len", "prev_row")
        return cls(*(np.array([getattr(req, name) for req in reqs], np.int32) for name in names))


class Reqs(Sequence[Req]):
    """The parts of a batch, made only if they are looked at: a step of hundreds of decodes is a few arrays.

    members: [B], the very same tuple as in the batch before if its rows are.
    """

    __slots__ = ("_made", "columns", "members")

    def __init__(self, members: tuple[Member, ...], columns: Columns) -> None:
        self.members = members
        self.columns = columns
        self._made: tuple[Req, ...] = ()

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Req]:
        return iter(self._all())

    @overload
    def __getitem__(self, row: int) -> Req: ...

    @overload
    def __getitem__(self, row: slice) -> tuple[Req, ...]: ...

    def __getitem__(self, row: int | slice) -> Req | tuple[Req, ...]:
        if self._made or isinstance(row, slice):
            return self._all()[row]
        _, cached_lens, device_lens, prev_rows = self.columns
        return self.members[row].req(int(cached_lens[row]), int(device_lens[row]), int(prev_rows[row]))

    def _all(self) -> tuple[Req, ...]:
        if not self._made:
            changing = (column.tolist() for column in self.columns[1:])
            self._made = tuple([member.req(*row) for member, *row in zip(self.members, *changing, strict=True)])
        return self._made


def members_of(reqs: Sequence[Req]) -> Sequence[Req | Member]:
    """What does not change of each of them. The very same object as for the last batch says that no row changed."""
    return reqs.members if isinstance(reqs, Reqs) else reqs


def columns_of(reqs: Sequence[Req]) -> Columns:
    """What changes of each of them, made only where it is not there already."""
    return reqs.columns if isinstance(reqs, Reqs) else Columns.of(reqs)
