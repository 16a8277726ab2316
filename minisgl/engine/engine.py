"""The device side: weights, KV pool, page table and sampler. One call, `forward`, runs one batch.

Shape letters: T tokens in the batch, B requests, N rows that sample, V vocabulary.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from minisgl.attention import create_attention_backend
from minisgl.core import Batch, BatchOutput, Context, ForwardInput, PageTableUpdate, Req, TokenLogprobs
from minisgl.engine.logprobs import prompt_logprobs
from minisgl.engine.memory import check_page_table_size, make_kv_pool
from minisgl.engine.output import DeviceOutput, FailedOutput
from minisgl.engine.sampler import Sampler
from minisgl.engine.spec import EngineSpec
from minisgl.engine.transfer import to_device
from minisgl.models.checkpoint import Checkpoint
from minisgl.models.config import ModelConfig
from minisgl.models.loader import load_model
from minisgl.utils.logging import get_logger
from minisgl.utils.math import div_ceil

logger = get_logger(__name__)
LOGITS_BLOCK = 256  # prompt positions whose logits exist at once


def last_tokens(batch: Batch) -> npt.NDArray[np.int64]:
    """[B]: where in T each request's last token lies."""
    return np.cumsum([req.extend_len for req in batch.reqs]) - 1


def is_out_of_memory(error: Exception) -> bool:
    """On a CPU torch has no exception of its own for it."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)


class Engine:
    """Owns every device tensor. Knows nothing of queues: it computes the batches that it is given, in order."""

    def __init__(self, spec: EngineSpec, model_config: ModelConfig, checkpoint: Checkpoint) -> None:
        self.spec = spec
        self.device = spec.device
        self.vocab_size = model_config.vocab_size
        self.model = load_model(
            checkpoint, model_config, dtype=spec.dtype, device=spec.device, load_format=spec.load_format
        )
        self.kv_pool = make_kv_pool(spec, model_config)
        row_len = div_ceil(spec.max_seq_len, spec.page_size)
        check_page_table_size(spec.max_running_req, row_len, self.device)
        self.page_table = torch.zeros(spec.max_running_req, row_len, dtype=torch.int32, device=self.device)
        backend = create_attention_backend(
            spec.attention_backend,
            kv_pool=self.kv_pool,
            page_table=self.page_table,
            page_size=spec.page_size,
            num_qo_heads=model_config.num_qo_heads,
            num_kv_heads=model_config.num_kv_heads,
            head_dim=model_config.head_dim,
        )
        self.ctx = Context(page_size=spec.page_size, attn_backend=backend)
        self.sampler = Sampler(self.vocab_size, self.device)

    @property
    def num_pages(self) -> int:
        return self.kv_pool.num_pages

    @torch.inference_mode()
    def forward(self, forward_input: ForwardInput) -> BatchOutput:
        """Run one batch; its tokens may still be on the device when this returns.

        Out of memory fails the requests of this batch, nothing else.
        """
        self._apply(forward_input.batch.page_table_update)
        try:
            return self._forward(forward_input.batch, forward_input.previous)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            logger.error("batch of %d tokens ran out of memory: %s", forward_input.batch.num_tokens, error)
            return FailedOutput(len(forward_input.batch.reqs), "out of memory while computing this batch")

    def _forward(self, batch: Batch, previous: BatchOutput | None) -> BatchOutput:
        prev_tokens = self._previous_tokens(batch.reqs, previous)
        input_ids, positions = self._inputs(batch, prev_tokens)
        ctx = replace(self.ctx, attn_metadata=self.ctx.attn_backend.plan(batch))
        hidden = self.model(input_ids, positions, ctx)
        return self._sample(batch, hidden, prev_tokens)

    def _apply(self, update: PageTableUpdate) -> None:
        if len(update.rows):
            cells = to_device(np.stack([update.rows, update.cols, update.pages]), torch.int64, self.device)
            self.page_table[cells[0], cells[1]] = cells[2].int()

    def _previous_tokens(self, reqs: tuple[Req, ...], previous: BatchOutput | None) -> torch.Tensor | None:
        """[B] int32: for rows with a `prev_row`, the token that is still on the device; None if no row has one."""
        prev_rows = [req.prev_row for req in reqs]
        if max(prev_rows) < 0:
            return None
        assert isinstance(previous, DeviceOutput | FailedOutput), "a row names a previous output that is not there"
        index = to_device([max(row, 0) for row in prev_rows], torch.int64, self.device)
        return previous.next_tokens.to(self.device)[index]

    def _inputs(self, batch: Batch, prev_tokens: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """input_ids and positions, each [T] int64."""
        known = [req.input_ids[req.cached_len : req.device_len] for req in batch.reqs]
        pads = [np.zeros(req.extend_len - len(ids), np.int32) for req, ids in zip(batch.reqs, known, strict=True)]
        ids = np.concatenate([part for pair in zip(known, pads, strict=True) for part in pair])
        positions = np.concatenate([np.arange(req.cached_len, req.device_len) for req in batch.reqs])
        input_ids = to_device(ids, torch.int64, self.device)
        if prev_tokens is not None:
            # A row that failed has token -1 here; it is over, so any token will do.
            rows = [row for row, req in enumerate(batch.reqs) if req.prev_row >= 0]
            last = to_device(last_tokens(batch)[rows], torch.int64, self.device)
            input_ids[last] = prev_tokens[to_device(rows, torch.int64, self.device)].clamp_min(0).long()
        return input_ids, to_device(positions, torch.int64, self.device)

    def _sample(self, batch: Batch, hidden: torch.Tensor, prev_tokens: torch.Tensor | None) -> BatchOutput:
        rows = [row for row, req in enumerate(batch.reqs) if req.samples]
        prompt = self._prompt_logprobs(batch, hidden)
        last = hidden[to_device(last_tokens(batch), torch.int64, self.device)]
        broken = ~torch.isfinite(last).all(dim=-1)  # a NaN in any of its tokens has come this far
        if not rows:
            return DeviceOutput.from_samples(len(batch.reqs), rows, None, prompt, broken)
        index = to_device(rows, torch.int64, self.device)
        prev = None if prev_tokens is None else prev_tokens[index]
        samples = self.sampler.sample(self.model.compute_logits(last[index]), [batch.reqs[row] for row in rows], prev)
        return DeviceOutput.from_samples(len(batch.reqs), rows, samples, prompt, broken)

    def _prompt_logprobs(self, batch: Batch, hidden: torch.Tensor) -> tuple[tuple[TokenLogprobs, ...], ...]:
        """By row; empty when no row asks."""
        if all(req.sampling_params.prompt_logprobs is None for req in batch.reqs):
            return ()
        begins = np.cumsum([0, *(req.extend_len for req in batch.reqs)])
        spans = zip(batch.reqs, begins[:-1], begins[1:], strict=True)
        return tuple(self._row_logprobs(req, hidden[begin:end]) for req, begin, end in spans)

    def _row_logprobs(self, req: Req, hidden: torch.Tensor) -> tuple[TokenLogprobs, ...]:
        top = req.sampling_params.prompt_logprobs
        if top is None or not req.is_prefill:
            return ()
        targets = torch.from_numpy(req.input_ids[req.cached_len + 1 : min(req.device_len + 1, req.prompt_len)])
        found: list[TokenLogprobs] = []
        for begin in range(0, len(targets), LOGITS_BLOCK):
            block = targets[begin : begin + LOGITS_BLOCK]
            logits = self.model.compute_logits(hidden[begin : begin + len(block)])
            found.extend(prompt_logprobs(logits, block.to(self.device), top))
        return tuple(found)
