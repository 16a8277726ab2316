"""Splits what decodes read into work items for the kernels, evenly over programs that all run at once.

What one row reads is a stretch of a long line, one after the other; the line is cut into equal columns, one for each
program (a program a KV head). A cut inside a stretch makes two items of it, whose results are joined:

    rows       |      0      |  1  |           2            | 3 |
    columns    |     0     |     1     |     2     |     3      |
    items      |     0     |1|  2  | 3 |     4     |  5     | 6 |

So there are at most as many items as rows and cuts together, however long the rows are.

Shape letters: B rows, C columns, I items, E queries listed, N partial results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from minisgl.attention.index import IntArray
from minisgl.attention.shared_prefix import SharedRange
from minisgl.kernel.attention_work import ITEM_FIELDS
from minisgl.utils.arrays import Int32Array

Int64 = npt.NDArray[np.int64]
_BEGIN_FIELD, _END_FIELD = 2, 3  # of an item of OwnWork


class Split(NamedTuple):
    """Items of stretches. stretch, begin, end: [I] each, begin and end within the stretch; columns: [C + 1], the items
    where each begins. first: [B + 1], where the items of each stretch begin."""

    stretch: Int64
    begin: Int64
    end: Int64
    columns: Int64
    first: Int64


def split_evenly(lengths: IntArray, num_columns: int, grain: int) -> Split:
    """Cut stretches of `lengths` [B] tokens, each 0 or more, into items of whole grains of tokens but for the last.

    An item costs a grain besides what it reads. A stretch of no tokens has one item.
    """
    costs = (lengths + (2 * grain - 1)) // grain
    ends = costs.cumsum()
    starts = ends - costs
    cuts = np.arange(num_columns) * int(ends[-1]) // num_columns
    cut_stretch = ends.searchsorted(cuts, side="right")
    offsets = cuts - starts[cut_stretch]
    # A cut into the cost of an item falls before it, so that none is empty.
    begins_item = offsets > 1
    begins_item[1:] &= cuts[1:] > cuts[:-1]
    columns = np.empty(num_columns + 1, np.int64)
    columns[:-1] = cut_stretch + begins_item.cumsum()
    first = np.zeros(len(lengths) + 1, np.int64)
    counts = np.bincount(cut_stretch[begins_item], minlength=len(lengths)) + 1
    counts.cumsum(out=first[1:])
    columns[-1] = num_items = first[-1]
    begin = np.zeros(num_items, np.int64)
    begin[columns[:-1][begins_item]] = (offsets[begins_item] - 1) * grain
    end = np.empty_like(begin)
    end[:-1] = begin[1:]
    end[first[1:] - 1] = lengths
    stretch = np.arange(len(lengths)).repeat(counts)
    return Split(stretch, begin, end, columns, first)


class OwnWork(NamedTuple):
    """What each row reads alone, for `paged_decode`. items: [I * ITEM_FIELDS]; columns: [C + 1]."""

    items: Int32Array
    columns: Int32Array


class TileWork(NamedTuple):
    """What tiles of queries read, for `tile_attention`, and how results are joined, for `merge_partials`.

    queries: [E]; items: [I * TILE_FIELDS]; columns: [C + 1]; parts: [N], row by row; part_begins: [rows + 1]; None
    where nothing is joined.
    """

    queries: Int32Array
    items: Int32Array
    columns: Int32Array
    parts: Int32Array | None = None
    part_begins: Int32Array | None = None


class Tiles(NamedTuple):
    """`size` queries of a list from `first` on, which read [begin, end) of a table row. position: of the first one."""

    first: IntArray
    size: IntArray
    table_row: IntArray
    begin: IntArray
    end: IntArray
    position: IntArray

    def items(self, split: Split, partial: IntArray) -> Int32Array:
        """partial: [I], of the first query of each item."""
        tile, begin = split.stretch, self.begin[split.stretch]
        kept = (self.first[tile], self.size[tile], self.table_row[tile])
        return _interleave(*kept, begin + split.begin, begin + split.end, partial, self.position[tile])


def plan_own(
    table_idxs: IntArray, begins: IntArray, ends: IntArray, num_columns: int, grain: int, is_whole: bool = False
) -> OwnWork:
    """Row b of table row table_idxs[b] reads [begins[b], ends[b]); one that begins later than at 0 is joined later,
    unless is_whole: then that is all that it reads."""
    split = split_evenly(ends - begins, num_columns, grain)
    row, begin, end, counts = split.stretch, split.begin, split.end, split.first[1:] - split.first[:-1]
    if begins.any():
        offset = begins[row]
        begin, end, counts = begin + offset, end + offset, np.where((begins > 0) & (not is_whole), 0, counts)
    items = _interleave(row, table_idxs[row], begin, end, split.first[row], counts[row])
    return OwnWork(items, split.columns.astype(np.int32))


class OwnPlanner:
    """`plan_own` for one batch after the other, cut anew only where that may give other items.

    A row that reads a token more nearly always costs as much as before: then nothing but the end of its last item is
    another one. So most steps of a few rows are spared the work; of hundreds, some always cost more.
    Rows that are whole where they begin, as in a window, may begin elsewhere each time: all their items move with them.
    """

    def __init__(self, num_columns: int, grain: int, is_whole: bool = False) -> None:
        self._num_columns = num_columns
        self._grain = grain
        self._is_whole = is_whole
        self._rows: tuple[bytes, ...] = ()
        self._work = OwnWork(np.empty(0, np.int32), np.empty(0, np.int32))
        self._begins: IntArray = np.empty(0, np.int64)
        self._last_ends: IntArray | None = None  # where in the items those of the last item of each row are

    def plan(self, table_idxs: IntArray, begins: IntArray, ends: IntArray) -> OwnWork:
        """See `plan_own`."""
        grains = (ends - begins + (self._grain - 1)) // self._grain
        rows = (table_idxs.tobytes(), b"" if self._is_whole else begins.tobytes(), grains.tobytes())
        if rows != self._rows:
            self._work = plan_own(table_idxs, begins, ends, self._num_columns, self._grain, self._is_whole)
            self._rows, self._begins, self._last_ends = rows, begins, None
            return self._work
        if self._last_ends is None:
            row = self._work.items[::ITEM_FIELDS]
            self._last_ends = np.append(np.flatnonzero(row[1:] > row[:-1]), len(row) - 1) * ITEM_FIELDS + _END_FIELD
        items = self._work.items.copy()
        if self._is_whole:
            moved = (begins - self._begins)[items[::ITEM_FIELDS]]
            items[_BEGIN_FIELD::ITEM_FIELDS] += moved
            items[_END_FIELD::ITEM_FIELDS] += moved
        items[self._last_ends] = ends
        return OwnWork(items, self._work.columns)


def plan_shared(
    own: OwnWork, ranges: Sequence[SharedRange], table_idxs: IntArray, tile_rows: int, num_columns: int, grain: int
) -> TileWork:
    """Tiles of up to `tile_rows` rows of a range; their partial results come after those of `own`."""
    queries = np.concatenate([rows for rows, _, _ in ranges])
    bounds = np.array([(begin, end) for _, begin, end in ranges])
    of_tile, first, size = _cut_lists(np.array([len(rows) for rows, _, _ in ranges]), tile_rows)
    begin, end = bounds[of_tile].T
    tiles = Tiles(first, size, table_idxs[queries[first]], begin, end, np.zeros_like(first))
    split = split_evenly(end - begin, num_columns, grain)
    own_items = own.items.reshape(-1, ITEM_FIELDS)
    counts = size[split.stretch]
    partial = np.cumsum(counts) - counts + len(own_items)
    # Whose partial result is which: those of the rows' own items that nobody joins yet, then those of the tiles.
    unjoined = np.flatnonzero(own_items[:, 5] == 0)
    whose = np.concatenate((own_items[unjoined, 0], queries[_listed(first[split.stretch], counts)]))
    parts = np.concatenate((unjoined, np.arange(len(own_items), partial[-1] + counts[-1])))
    return TileWork(
        queries.astype(np.int32),
        tiles.items(split, partial),
        split.columns.astype(np.int32),
        *_parts_by_row(whose, parts, len(table_idxs)),
    )


def plan_extends(
    table_idxs: IntArray,
    cached_lens: IntArray,
    device_lens: IntArray,
    tile_rows: int,
    num_columns: int,
    grain: int,
    window: int = 0,
    first_query: int = 0,
) -> TileWork:
    """Rows that compute tokens [cached_len, device_len) each, one row after the other; a token sees all up to itself,
    or of these the last `window`, if it is not 0. first_query: the number in the batch of the first of them all.

    Few tiles are cut, so that every program has work; many are not, and begin with the longest.
    """
    sizes = (device_lens - cached_lens).astype(np.int64)
    row, first, size = _cut_lists(sizes, tile_rows)
    position = cached_lens[row] + first - (np.cumsum(sizes) - sizes)[row]
    ends = position + size
    begins = np.maximum(position - (window - 1), 0) if window else np.zeros_like(first)
    lengths = ends - begins
    tiles = Tiles(first, size, table_idxs[row], begins, ends, position)
    queries = np.arange(first_query, first_query + sizes.sum(), dtype=np.int32)
    if len(lengths) >= 2 * num_columns:
        order, whole = np.argsort(-lengths, kind="stable"), np.arange(len(lengths) + 1)
        split = Split(order, np.zeros_like(lengths), lengths[order], whole, whole)
        return TileWork(queries, tiles.items(split, np.full(len(lengths), -1)), whole.astype(np.int32))
    split = split_evenly(lengths, num_columns, grain)
    is_cut = np.diff(split.first)[split.stretch] > 1
    counts = np.where(is_cut, size[split.stretch], 0)
    partial = np.cumsum(counts) - counts
    items, columns = tiles.items(split, np.where(is_cut, partial, -1)), split.columns.astype(np.int32)
    if not is_cut.any():
        return TileWork(queries, items, columns)
    whose = first_query + _listed(first[split.stretch], counts)
    return TileWork(queries, items, columns, *_parts_by_row(whose, np.arange(len(whose)), first_query + len(queries)))


def _interleave(*fields: IntArray) -> Int32Array:
    """[I * len(fields)]: the fields of one item after the other."""
    items = np.empty((len(fields[0]), len(fields)), np.int32)
    for index, field in enumerate(fields):
        items[:, index] = field
    return items.ravel()


def _cut_lists(sizes: IntArray, tile_rows: int) -> tuple[IntArray, IntArray, IntArray]:
    """Lists of `sizes` queries, one after the other, in tiles of up to `tile_rows`: each one's list, first, size."""
    tiles = -(-sizes // tile_rows)
    of_tile = np.repeat(np.arange(len(sizes)), tiles)
    before = (np.arange(len(of_tile)) - np.repeat(np.cumsum(tiles) - tiles, tiles)) * tile_rows
    return of_tile, (np.cumsum(sizes) - sizes)[of_tile] + before, np.minimum(sizes[of_tile] - before, tile_rows)


def _listed(first: IntArray, counts: IntArray) -> IntArray:
    """first[0], first[0] + 1, ... `counts[0]` of them, then likewise of the next."""
    listed: IntArray = np.arange(counts.sum()) + np.repeat(first - (np.cumsum(counts) - counts), counts)
    return listed


def _parts_by_row(whose: IntArray, parts: IntArray, num_rows: int) -> tuple[Int32Array, Int32Array]:
    """`parts` in the order of the rows whose they are, and where those of each row begin."""
    order = np.argsort(whose, kind="stable")
    begins = np.searchsorted(whose[order], np.arange(num_rows + 1))
    return parts[order].astype(np.int32), begins.astype(np.int32)
