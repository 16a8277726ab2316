"""What the layers of one forward pass of the Triton backend share: work items on the device.

Shape letters: T tokens, B rows, D decode rows, E queries listed, I items, C columns, N partial results.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from minisgl.attention.decode_plan import OwnPlanner, OwnWork, TileWork, plan_extends, plan_shared
from minisgl.attention.index import IntArray
from minisgl.attention.shared_prefix import MAX_LEVELS, SharedChooser, SharedRanges
from minisgl.core import Batch, Staging
from minisgl.kernel.attention_work import ITEM_FIELDS, TILE_FIELDS
from minisgl.utils.math import pad_end

MAX_PROMPTS = 32  # of a graph: each may have a tile that is not full, and all tiles have programs


class OwnPart(NamedTuple):
    """What `paged_decode` takes. items: [I * ITEM_FIELDS]; columns: [C + 1]; both int32."""

    items: torch.Tensor
    columns: torch.Tensor


class TilePart(NamedTuple):
    """What `tile_attention` and `merge_partials` take, all int32. queries: [E]; items: [I * TILE_FIELDS];
    columns: [C + 1]; parts: [N], part_begins: [rows + 1], or None where nothing is joined."""

    queries: torch.Tensor
    items: torch.Tensor
    columns: torch.Tensor
    parts: torch.Tensor | None = None
    part_begins: torch.Tensor | None = None


class LayerWork(NamedTuple):
    """What layers of one window read. own: of decodes, alone; shared: together, before it. extends: of prompts, where
    tokens see `window` positions, 0: all."""

    own: OwnPart | None
    shared: TilePart | None
    extends: TilePart | None
    window: int


@dataclass(frozen=True, slots=True, eq=False)
class TritonAttnMetadata:
    """works: of each kind of layer, by its window. has_gaps: whether there may be tokens of which no work is."""

    works: tuple[LayerWork, ...]
    has_gaps: bool

    @property
    def variant(self) -> bool:
        """Which kernels a graph of such a step has."""
        return any(work.shared is not None for work in self.works)


class WindowPlanner(NamedTuple):
    """For layers that see `window` tokens, 0: all. own: of what rows read alone. chooser: of what they share; None:
    nothing is read together."""

    window: int
    own: OwnPlanner
    chooser: SharedChooser | None


@dataclass(frozen=True, slots=True)
class WorkShape:
    """What does not change from batch to batch. own_columns, tile_columns: programs a KV head that run at once.

    shared_columns: those of tiles which leave processors to what rows read alone meanwhile. own_grain, tile_grain:
    tokens. tile_rows: queries of a tile.
    """

    own_columns: int
    own_grain: int
    tile_columns: int
    shared_columns: int
    tile_grain: int
    tile_rows: int

    @property
    def num_extend_partials(self) -> int:
        """The most partial results of prompts: fewer tiles than twice the columns are cut, once a column."""
        return 3 * self.tile_columns * self.tile_rows

    def num_partials(self, num_rows: int) -> int:
        """The most partial results of a batch with `num_rows` decodes, and any prompts."""
        own = num_rows + self.own_columns
        return max(own + num_rows * MAX_LEVELS + self.tile_columns * self.tile_rows, self.num_extend_partials)

    def most_tiles(self, num_tokens: int) -> int:
        """Of the prompts of a graph of so many tokens."""
        return num_tokens // self.tile_rows + MAX_PROMPTS


class BatchWork:
    """The work of one batch, sent through `staging`.

    padded: it runs as the graph of so many tokens. That of decodes has an item for each padded row, too, which reads
    nothing and gives zeros. That of prompts has kernels for decodes and for a join, whether there is any or not, and
    nothing is shared there.
    """

    def __init__(self, batch: Batch, staging: Staging, shape: WorkShape, padded: int | None) -> None:
        self._batch = batch
        self._staging = staging
        self._shape = shape
        self._padded = padded
        self._has_prompts = batch.num_decodes < len(batch.reqs)

    def exceeds(self, window: int) -> bool:
        """Whether any row may be longer. A graph is made for all."""
        return self._padded is not None or int(self._batch.device_lens.max()) > window

    @property
    def has_gaps(self) -> bool:
        return self._padded is not None and self._has_prompts

    def plan(self, planner: WindowPlanner) -> LayerWork:
        """What layers of its window read."""
        own, shared = self._plan_decodes(planner) if self._batch.num_decodes or self.has_gaps else (None, None)
        extends = self._plan_extends(planner.window) if self._has_prompts else None
        return LayerWork(own, shared, extends, planner.window)

    def _plan_decodes(self, planner: WindowPlanner) -> tuple[OwnPart, TilePart | None]:
        batch, shape, num_decodes = self._batch, self._shape, self._batch.num_decodes
        if num_decodes == 0:
            return self._send_own(OwnWork(np.empty(0, np.int32), np.zeros(shape.own_columns + 1, np.int32))), None
        shared = SharedRanges([], np.zeros(len(batch.reqs), np.int64))
        if planner.chooser is not None and not self.has_gaps:
            shared = planner.chooser.choose(batch.groups, len(batch.reqs), num_decodes)
        table_idxs, ends = self._of_decodes(batch.table_idxs), self._of_decodes(batch.device_lens)
        begins = self._of_decodes(shared.own_begins)
        if planner.window:
            begins = np.maximum(ends - planner.window, 0)
        own = planner.own.plan(table_idxs, begins, ends)
        if not shared.ranges:
            return self._send_own(own), None
        together = plan_shared(own, shared.ranges, table_idxs, shape.tile_rows, shape.shared_columns, shape.tile_grain)
        return self._send_own(own), self._send_shared(together)

    def _of_decodes(self, values: IntArray) -> IntArray:
        """Those of `values` [B] that are of decodes, and zeros for padded rows, which read nothing."""
        values = values[: self._batch.num_decodes]
        return values if self._padded is None or self._has_prompts else pad_end(values, self._padded)

    def _send_own(self, own: OwnWork) -> OwnPart:
        most_items = (self._padded or 0) + self._shape.own_columns
        return OwnPart(self._add(own.items, most_items * ITEM_FIELDS), self._add(own.columns, len(own.columns)))

    def _send_shared(self, work: TileWork) -> TilePart:
        """Every row is in at most MAX_LEVELS ranges, a tile has at least one, and a cut doubles the results of one."""
        shape, num_rows = self._shape, self._padded or 0
        most_queries = num_rows * MAX_LEVELS
        most_items = most_queries + shape.shared_columns
        most_parts = num_rows + shape.own_columns + most_queries + shape.shared_columns * shape.tile_rows
        capacities = (most_queries, most_items * TILE_FIELDS, shape.shared_columns + 1, most_parts, num_rows + 1)
        return TilePart(*(self._add(x, most) for x, most in zip(work, capacities, strict=True) if x is not None))

    def _plan_extends(self, window: int) -> TilePart:
        batch, shape, num_decodes = self._batch, self._shape, self._batch.num_decodes
        table_idxs, cached_lens, device_lens = (
            x[num_decodes:] for x in (batch.table_idxs, batch.cached_lens, batch.device_lens)
        )
        pieces = (shape.tile_rows, shape.tile_columns, shape.tile_grain)
        return self._send_extends(plan_extends(table_idxs, cached_lens, device_lens, *pieces, window, num_decodes))

    def _send_extends(self, work: TileWork) -> TilePart:
        """A graph has programs for as much as any batch needs: columns may be empty, and nothing joined."""
        shape, num_tokens = self._shape, self._padded or 0
        parts, part_begins = work.parts, work.part_begins
        if self.has_gaps and (parts is None or part_begins is None):
            parts, part_begins = np.empty(0, np.int32), np.zeros(1, np.int32)
        most_tiles = shape.most_tiles(num_tokens)
        queries = self._add(work.queries, num_tokens)
        items = self._add(work.items, (most_tiles + shape.tile_columns) * TILE_FIELDS)
        columns = self._add(work.columns, max(most_tiles, shape.tile_columns) + 1, fill=work.columns[-1])
        if parts is None or part_begins is None:
            return TilePart(queries, items, columns)
        parts_sent = self._add(parts, shape.num_extend_partials)
        return TilePart(queries, items, columns, parts_sent, self._add(part_begins, num_tokens + 1, fill=len(parts)))

    def _add(self, values: IntArray, capacity: int | None = None, fill: float = 0) -> torch.Tensor:
        return self._staging.add(values, None if self._padded is None else capacity, fill)
