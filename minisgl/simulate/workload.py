"""A trace as scheduler and prefix cache see it: token ids that have the trace's prefixes.

One page of the pool becomes one token at page size 1, since only whole pages are ever shared: the tree has the same
structure and the same hits, and is 16 to 512 times cheaper to drive. A unit is what the tree takes for a token: a page,
or, where the trace is expanded, a real token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from minisgl.kvcache.slots import pages_to_slots
from minisgl.simulate.trace import Run, Trace, TracedRequest
from minisgl.utils.arrays import Int32Array
from minisgl.utils.math import div_ceil

MAX_ID = 2**31 - 2  # the greatest int32 is the end token
PAGE_OF_TOKENS = 16  # the default page size where a trace's block is one token
LARGEST_PAGE = 64  # and the largest default page size


class Units(NamedTuple):
    """block_size: tokens a block of the trace. unit: tokens a unit; it divides the block, or the block divides it."""

    block_size: int
    unit: int

    @property
    def blocks_per_unit(self) -> int:
        return max(1, self.unit // self.block_size)

    @property
    def units_per_block(self) -> int:
        return max(1, self.block_size // self.unit)

    def from_blocks(self, num_blocks: int) -> int:
        """Whole units in so many blocks; the last block of a prompt counts whole."""
        return num_blocks * self.units_per_block // self.blocks_per_unit

    def label(self, blocks: Int32Array) -> Int32Array:
        """[blocks] block ids from a prompt's start -> [units] ids that are equal just where block and prefix are."""
        if self.blocks_per_unit > 1:
            return blocks[self.blocks_per_unit - 1 :: self.blocks_per_unit].copy()
        return pages_to_slots(blocks, self.units_per_block)


@dataclass(frozen=True, slots=True)
class Item:
    """One request in units. Its ids are made when asked for, since those of a whole trace may fill the memory.

    num_prompt: units of the prompt, at least 1. num_known: with those of the output whose content the trace tells.
    num_filler: output units beyond, ids `filler_id` and on, which nobody else has.
    """

    request: TracedRequest
    units: Units
    num_prompt: int
    num_known: int
    num_filler: int = 0
    filler_id: int = 0

    @property
    def num_kept(self) -> int:
        """Units whose KV is computed and may stay in the cache."""
        return self.num_known + self.num_filler

    def known_ids(self) -> Int32Array:
        """[num_known] int32"""
        blocks = _expand((*self.request.prompt_runs, *self.request.output_runs))
        labels = self.units.label(blocks)
        return labels if len(labels) else blocks[-1:]  # shorter than one unit: a page that nobody can share

    def ids(self) -> Int32Array:
        """[num_kept] int32"""
        filler = np.arange(self.filler_id, self.filler_id + self.num_filler, dtype=np.int32)
        return np.concatenate([self.known_ids(), filler])

    def prompt_tokens(self, num_units: int) -> int:
        """Tokens in the first units of the prompt."""
        return min(num_units * self.units.unit, self.request.prompt_len)


@dataclass(frozen=True)
class Workload:
    """page_size: tokens a page. units_per_page: 1, or page_size where every token is a unit. ids are below num_ids."""

    name: str
    page_size: int
    units_per_page: int
    num_ids: int
    items: tuple[Item, ...]

    @property
    def unit(self) -> int:
        """Tokens a unit."""
        return self.page_size // self.units_per_page

    @property
    def longest(self) -> int:
        """Pages that the largest request needs."""
        return max(div_ceil(item.num_kept, self.units_per_page) for item in self.items)


def make_workload(trace: Trace, page_size: int | None = None, *, expand: bool = False, fill: bool = False) -> Workload:
    """The trace's requests in units.

    page_size: tokens a page; it must divide the trace's block or be a multiple of it. None: a block, but at most 64
    tokens, and 16 tokens where a block is one. expand: every token is a unit. fill: where the trace does not tell what
    an output holds, it gets ids of its own, so that it takes its pages.
    """
    block_size = trace.block_size
    size = page_size or default_page_size(block_size)
    if size % block_size and block_size % size:
        raise ValueError(
            f"page_size={size} neither divides the trace's block of {block_size} tokens nor is its multiple"
        )
    units = Units(block_size, 1 if expand else size)
    num_ids = max(first + count for r in trace.requests for first, count in (*r.prompt_runs, *r.output_runs))
    num_ids *= units.units_per_block
    items = []
    for request in trace.requests:
        item = _item(request, units, num_ids if fill else None)
        num_ids += item.num_filler
        items.append(item)
    if num_ids > MAX_ID:
        raise ValueError(
            f"{trace.name}: {num_ids} different units of {units.unit} tokens are more than ids; take larger pages"
        )
    return Workload(trace.name, size, size if expand else 1, num_ids, tuple(items))


def default_page_size(block_size: int) -> int:
    """A block; of a large one its largest part of at most 64 tokens; 16 where it is one token."""
    if block_size == 1:
        return PAGE_OF_TOKENS
    return max(size for size in range(1, min(block_size, LARGEST_PAGE) + 1) if block_size % size == 0)


def _item(request: TracedRequest, units: Units, filler_id: int | None) -> Item:
    """filler_id: the first id for an output that is not known; None: leave it out."""
    prompt_blocks, output_blocks = _count(request.prompt_runs), _count(request.output_runs)
    num_prompt = max(1, units.from_blocks(prompt_blocks))
    num_known = max(num_prompt, units.from_blocks(prompt_blocks + output_blocks))
    if filler_id is None or output_blocks:
        return Item(request, units, num_prompt, num_known)
    return Item(request, units, num_prompt, num_known, request.output_len // units.unit, filler_id)


def _count(runs: tuple[Run, ...]) -> int:
    return sum(count for _, count in runs)


def _expand(runs: tuple[Run, ...]) -> Int32Array:
    return np.concatenate([np.arange(first, first + count, dtype=np.int32) for first, count in runs])
