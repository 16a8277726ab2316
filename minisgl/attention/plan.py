"""Works out once a batch, on the host, what attention reads and writes: see `minisgl.attention.parts`.

Shape letters: T tokens in the batch, B its rows, P pages a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from minisgl.attention.buckets import length_buckets
from minisgl.attention.index import Index, IntArray, index_len, make_index
from minisgl.attention.parts import BandPart, DecodePart, ExtendPart, LayerParts, PrefixPart
from minisgl.attention.shared_prefix import GATHERED, SharedRange, choose_shared
from minisgl.core import Batch

# A bucket's gathered keys: larger ones fall out of the cache before they are used, smaller ones are more calls.
MAX_BUCKET_BYTES = 6 << 20
# A decode row in one run of slots is read in place where its keys are this many bytes: a call for it alone then costs
# less than copying them into a bucket.
MIN_IN_PLACE_BYTES = 512 << 10
# ... and always while there are so few decode rows that a bucket would spare next to no calls.
MAX_ROWS_IN_PLACE = 2
# Tokens of a band: each is scored with as many keys again as it does not see, and a smaller one is more calls.
BAND_TOKENS = 256


@dataclass(frozen=True)
class AttnShape:
    """What does not change from batch to batch."""

    page_size: int
    num_qo_heads: int
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device

    @property
    def bytes_per_key(self) -> int:
        """Bytes of one slot's keys in one layer."""
        return self.num_kv_heads * self.head_dim * self.dtype.itemsize


class BatchPlanner:
    """Plans one batch for layers that see `window` tokens, 0: all.

    table [B, P]: its rows of the page table. shared_prefix: whether ranges are read once.
    """

    def __init__(self, batch: Batch, table: IntArray, shape: AttnShape, shared_prefix: bool, window: int) -> None:
        self._groups = batch.groups if shared_prefix else ()
        self._table = table
        self._shape = shape
        self._page_size = shape.page_size
        self._device = shape.device
        self._cached = batch.cached_lens.astype(np.int64)
        self._extend = batch.extend_lens.astype(np.int64)
        self._first_token = np.cumsum(self._extend) - self._extend
        self._window = window
        is_decode = self._extend == 1
        self._is_long = self._cached + self._extend > (window or 1 << 62)  # [B] something is out of sight
        # Numbers of the rows with one new token, with several, and with several of which some do not see the first.
        self._decodes = np.flatnonzero(is_decode)
        self._extends = np.flatnonzero(~(is_decode | self._is_long))
        self._banded = np.flatnonzero(self._is_long & ~is_decode)
        self._band_masks: dict[tuple[int, int], torch.Tensor] = {}

    def plan(self) -> LayerParts:
        shared, start = self._shared_ranges()
        prefixes = (*self._shared_parts(shared), *self._private_parts(start))
        decodes = tuple(self._decode_parts(start))
        bands = tuple(self._bands())
        return LayerParts(
            prefixes=prefixes,
            extends=tuple(self._extend_parts()),
            bands=bands,
            decodes=decodes,
            num_gathered=_most_gathered((*prefixes, *bands, *decodes)),
        )

    def _shared_ranges(self) -> tuple[list[SharedRange], IntArray]:
        """What is read once for several rows, and [B] from where each is read alone: from the end of that, or from
        where the window of its first new token begins."""
        windows = np.where(self._is_long, np.maximum(0, self._cached + 1 - self._window), 0)
        if not self._groups:
            return [], windows
        shared = choose_shared(self._groups, ~self._is_long, GATHERED)
        return shared.ranges, shared.own_begins + windows

    def _slots(self, rows: IntArray | int, positions: IntArray) -> IntArray:
        """The slots of `positions` of `rows`, which broadcast against each other."""
        pages, offsets = np.divmod(positions, self._page_size) if self._page_size > 1 else (positions, 0)
        slots: IntArray = self._table[rows, pages].astype(np.int64) * self._page_size + offsets
        return slots

    def _tokens(self, rows: IntArray) -> IntArray:
        """The numbers in the batch of all tokens of `rows`, row by row."""
        return np.concatenate([np.arange(self._extend[row]) + self._first_token[row] for row in rows])

    def _index(self, numbers: IntArray) -> Index:
        return make_index(numbers, self._device)

    def _shared_parts(self, shared: Iterable[SharedRange]) -> Iterator[PrefixPart]:
        for rows, begin, end in shared:
            slots = self._slots(int(rows[0]), np.arange(begin, end))
            yield PrefixPart(self._index(self._tokens(rows)), self._index(slots))

    def _private_parts(self, start: IntArray) -> Iterator[PrefixPart]:
        """What the rows with several new tokens alone see of what was computed before; `start` [B] is shared."""
        for row in self._extends[start[self._extends] < self._cached[self._extends]]:
            slots = self._slots(int(row), np.arange(start[row], self._cached[row]))
            yield PrefixPart(self._index(self._tokens(np.array([row]))), self._index(slots))

    def _extend_parts(self) -> Iterator[ExtendPart]:
        lengths = self._extend[self._extends]
        for extend_len in np.unique(lengths):
            rows = self._extends[lengths == extend_len]
            yield ExtendPart(self._index(self._tokens(rows)), len(rows))

    def _bands(self) -> Iterator[BandPart]:
        """Rows with several new tokens that are longer than the window."""
        for row in self._banded:
            cached, token = int(self._cached[row]), int(self._first_token[row])
            end = cached + int(self._extend[row])
            for first in range(cached, end, BAND_TOKENS):
                begin, stop = max(0, first + 1 - self._window), min(end, first + BAND_TOKENS)
                slots = self._index(self._slots(int(row), np.arange(begin, stop)))
                tokens = slice(token + first - cached, token + stop - cached)
                yield BandPart(tokens, slots, self._band_mask(stop - first, stop - begin))

    def _band_mask(self, num_tokens: int, num_slots: int) -> torch.Tensor:
        """Of the last `num_tokens` of `num_slots` positions."""
        key = num_tokens, num_slots
        if key not in self._band_masks:
            slots = np.arange(num_slots)
            tokens = slots[-num_tokens:, None]
            is_seen = (slots <= tokens) & (slots > tokens - self._window)
            mask = np.where(is_seen, np.float32(0), np.float32("-inf"))
            self._band_masks[key] = torch.from_numpy(mask[None, None]).to(self._device)
        return self._band_masks[key]

    def _decode_parts(self, start: IntArray) -> Iterator[DecodePart]:
        """Rows with one new token, from `start` [B] on: long runs of slots in place, the others in buckets."""
        rows = self._decodes
        in_place = np.array(
            [self._reads_in_place(int(row), int(start[row]), len(rows)) for row in rows], dtype=np.bool_
        )
        for row in rows[in_place]:
            yield self._bucket(np.array([row]), start)
        rest = rows[~in_place]
        max_tokens = max(1, MAX_BUCKET_BYTES // self._shape.bytes_per_key)
        for members in length_buckets(self._cached[rest] + 1 - start[rest], max_tokens):
            yield self._bucket(rest[members], start)

    def _reads_in_place(self, row: int, start: int, num_rows: int) -> bool:
        num_keys = int(self._cached[row]) + 1 - start
        if num_rows > MAX_ROWS_IN_PLACE and num_keys * self._shape.bytes_per_key < MIN_IN_PLACE_BYTES:
            return False
        pages = self._table[row, start // self._page_size : self._cached[row] // self._page_size + 1]
        return bool((np.diff(pages) == 1).all())

    def _bucket(self, rows: IntArray, start: IntArray) -> DecodePart:
        last = self._cached[rows, None]
        positions = start[rows, None] + np.arange(int((last[:, 0] - start[rows]).max()) + 1)
        slots = self._slots(rows[:, None], np.minimum(positions, last))
        return DecodePart(
            self._index(self._first_token[rows]), self._index(slots.ravel()), self._padding_mask(positions > last)
        )

    def _padding_mask(self, is_padding: np.ndarray) -> torch.Tensor | None:
        if not is_padding.any():
            return None
        mask = np.where(is_padding, np.float32("-inf"), np.float32(0))
        return torch.from_numpy(mask[:, None, None, :]).to(self._device)


def _most_gathered(parts: Iterable[PrefixPart | BandPart | DecodePart]) -> int:
    return max((index_len(part.slots) for part in parts if not isinstance(part.slots, slice)), default=0)
