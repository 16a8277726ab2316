"""One forward pass, from a batch on the host to hidden states: run call by call, or replayed from a CUDA graph.

Shape letters: T tokens in the batch, B requests, H hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import torch

from minisgl.core import Batch, Context
from minisgl.engine.graphs import GraphPool, Key, largest_first, prefill_batch, rehearsals
from minisgl.engine.inputs import PageTable, PageTableCells, StepInputs, stage_cells, stage_decodes, stage_inputs
from minisgl.engine.sampler import Sampler
from minisgl.engine.staging import make_staging
from minisgl.engine.tapes import ModelTapes
from minisgl.kernel import begin_step, mark_broken
from minisgl.models.base import BaseCausalLM


class Staged(NamedTuple):
    """What a forward pass reads, on its way to the device. metadata: of the attention backend."""

    cells: PageTableCells
    inputs: StepInputs
    metadata: Any


class Computed(NamedTuple):
    """What `Step.compute` leaves. hidden [T or more, H]: after the final norm; overwritten by the next graph."""

    inputs: StepInputs
    hidden: torch.Tensor


class Decoded(NamedTuple):
    """What a captured decode step leaves: it is overwritten by the next one, and holds anything in padded rows.

    hidden [B, H]; tokens [B] int32 as in `DeviceOutput`. The logits are not kept: each graph would have memory for its
    own.
    """

    inputs: StepInputs
    hidden: torch.Tensor
    tokens: torch.Tensor


class Step:
    """Runs batches, and keeps the tokens of the last one where the next one looks for those that the host awaits.

    last_tokens: [most rows of a batch] int32, row by row like the batch that was run last.
    """

    def __init__(self, model: BaseCausalLM, page_table: PageTable, ctx: Context, sampler: Sampler) -> None:
        self._model = model
        self._page_table = page_table
        self._ctx = ctx
        self._sampler = sampler
        self._staging = make_staging(page_table.device.device)
        self._graphs = GraphPool()
        self._tapes = ModelTapes(model, model.place.tp.size)
        self.last_tokens = torch.full_like(page_table.device[:, 0], -1)
        self._row_numbers = torch.arange(len(self.last_tokens), dtype=torch.int32, device=self.last_tokens.device)

    def stage(self, batch: Batch, padded: int | None = None) -> Staged:
        """Send what the forward pass of this batch reads to the device. padded: for the graph of so many tokens."""
        self._staging.begin()
        inputs = stage_inputs(batch, self._page_table, self._staging, padded)
        metadata = self._ctx.attn_backend.plan(batch, self._staging, padded)
        staged = Staged(stage_cells(batch.page_table_update, self._staging), inputs, metadata)
        self._staging.send()
        return staged

    @property
    def can_capture_prompts(self) -> bool:
        """Whether batches with prompts can have graphs."""
        can_capture: bool = self._ctx.attn_backend.can_capture_prompts
        return can_capture

    def keep_staged_until(self, event: torch.cuda.Event | None) -> None:
        """When what the last batch was given has been read."""
        self._staging.keep_until(event)

    def compute(self, batch: Batch) -> Computed:
        """Run any batch: by a graph if one fits, else call by call."""
        size = self._prompts_size(batch)
        staged = self.stage(batch, size)
        if size is None:
            return Computed(staged.inputs, self.run(staged))
        self._begin(staged)
        hidden = self._graphs.replay(Key(size, staged.metadata.variant, has_prompts=True))
        return Computed(staged.inputs, cast(torch.Tensor, hidden))

    def run(self, staged: Staged) -> torch.Tensor:
        """Hidden states after the final norm, [T, H]."""
        self._begin(staged)
        return self._run_model(staged)

    def _begin(self, staged: Staged) -> None:
        """Write what the host has decided and the last step has left where the model reads it."""
        inputs = staged.inputs
        begin_step(
            *(self._page_table.device, *staged.cells),
            *(inputs.input_ids, inputs.last, inputs.prev_rows, self.last_tokens),
        )

    def _run_model(self, staged: Staged) -> torch.Tensor:
        ctx = self._ctx.with_step(staged.metadata, staged.inputs.out_loc)
        return self._tapes.run(staged.inputs, ctx)

    def capture(self, sizes: Sequence[int], max_seq_len: int) -> None:
        """Make the graphs for decode batches of these padded sizes."""
        for size, batch in rehearsals(sizes, self._page_table.page_size, max_seq_len):
            self._staging.begin()
            staged, settings = self._add_padded(batch, size)
            self._staging.send()
            key = Key(size, staged.metadata.variant)
            if key not in self._graphs:
                self._graphs.capture(key, partial(self._decode, staged, settings))
        torch.cuda.empty_cache()  # what the uncaptured runs took

    def is_host_bound(self, size: int, max_seq_len: int) -> bool:
        """Whether a graph of a batch with so many tokens of prompts spares time. Runs it; on a GPU."""
        return self._graphs.is_host_bound(*self._prompts(size, max_seq_len))

    def capture_prompts(self, sizes: Sequence[int], max_seq_len: int) -> None:
        """Make the graphs for batches with prompts of these padded numbers of tokens."""
        for size in largest_first(sizes):
            self._graphs.capture(*self._prompts(size, max_seq_len))
        torch.cuda.empty_cache()

    def _prompts(self, size: int, max_seq_len: int) -> tuple[Key, Callable[[], torch.Tensor]]:
        """A graph of a batch with prompts, and what it is made of."""
        staged = self.stage(prefill_batch(size, len(self.last_tokens), max_seq_len), size)
        return Key(size, staged.metadata.variant, has_prompts=True), partial(self._run_model, staged)

    def _prompts_size(self, batch: Batch) -> int | None:
        """The size of the graph that holds this batch with prompts; None if there is none."""
        if batch.num_decodes == len(batch.reqs):
            return None
        size = self._graphs.size_for(batch.num_tokens, has_prompts=True)
        return size if size is not None and self._ctx.attn_backend.can_replay(batch) else None

    def replay(self, batch: Batch) -> Decoded | None:
        """Run a batch of decodes by its graph. None if none fits: there are prompts, or too many rows or new cells."""
        size = self._graphs.size_for(len(batch.reqs))
        if size is None or batch.num_decodes < len(batch.reqs):
            return None
        if len(batch.page_table_update.rows) > _max_cells(size) or not self._ctx.attn_backend.can_replay(batch):
            return None
        self._staging.begin()
        staged, _ = self._add_padded(batch, size)
        key = Key(size, staged.metadata.variant)
        if key not in self._graphs:
            return None
        self._staging.send()
        return cast(Decoded, self._graphs.replay(key))

    def _add_padded(self, batch: Batch, size: int) -> tuple[Staged, torch.Tensor]:
        """What `stage` sends, for `size` rows, and the sampler's settings for each row."""
        staging, table = self._staging, self._page_table
        staged = Staged(
            cells=stage_cells(batch.page_table_update, staging, _max_cells(size)),
            inputs=stage_decodes(batch, table, staging, size, self._row_numbers),
            metadata=self._ctx.attn_backend.plan(batch, staging, size),
        )
        settings = self._sampler.settings(batch.reqs)
        return staged, staging.add(settings.ravel(), settings.shape[1] * size)

    def _decode(self, staged: Staged, settings: torch.Tensor) -> Decoded:
        """What is captured: nothing here waits for the device, or depends on a value."""
        hidden = self.run(staged)
        logits = self._model.compute_logits(hidden)
        tokens = self._sampler.choose(logits, settings, out=self.last_tokens[: len(hidden)])
        mark_broken(hidden, tokens)
        return Decoded(staged.inputs, hidden, tokens)


def _max_cells(size: int) -> int:
    """Page-table cells that a graph for `size` rows can write: one or two a row, and some for rows rewritten."""
    return 2 * size + 256
