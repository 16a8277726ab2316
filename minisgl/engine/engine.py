"""The device side: weights, KV pool, page table and sampler. One call, `forward`, runs one batch.

Shape letters: T tokens in the batch, B requests, N rows that sample, V vocabulary.
"""

from __future__ import annotations

import numpy as np
import torch

from minisgl.attention import AttnConfig, create_attention_backend
from minisgl.core import Batch, BatchOutput, Context, ForwardInput, Req, TokenLogprobs
from minisgl.engine.inputs import PageTable, StepInputs, fill_in_tokens, stage_cells, stage_inputs
from minisgl.engine.logprobs import prompt_logprobs
from minisgl.engine.memory import check_page_table_size, make_kv_pool
from minisgl.engine.output import DeviceOutput, FailedOutput
from minisgl.engine.sampler import Sampler
from minisgl.engine.spec import EngineSpec
from minisgl.engine.staging import make_staging
from minisgl.engine.transfer import to_device
from minisgl.models.checkpoint import Checkpoint
from minisgl.models.config import ModelConfig
from minisgl.models.loader import load_model
from minisgl.utils.logging import get_logger
from minisgl.utils.math import div_ceil

logger = get_logger(__name__)
LOGITS_BLOCK = 256  # prompt positions whose logits exist at once


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
            checkpoint, model_config, dtype=spec.dtype, device=spec.device, tp=spec.tp, load_format=spec.load_format
        )
        self.kv_pool = make_kv_pool(spec, model_config)
        row_len = div_ceil(spec.max_seq_len, spec.page_size)
        check_page_table_size(spec.max_running_req, row_len, self.device)
        self.page_table = PageTable(spec.max_running_req, row_len, spec.page_size, self.device)
        backend = create_attention_backend(
            spec.attention_backend,
            AttnConfig(
                kv_pool=self.kv_pool,
                page_table=self.page_table.device,
                host_table=self.page_table.host,
                page_size=spec.page_size,
                num_qo_heads=spec.tp.shard("num_qo_heads", model_config.num_qo_heads),
                num_kv_heads=spec.tp.shard("num_kv_heads", model_config.num_kv_heads),
                head_dim=model_config.head_dim,
                max_running_req=spec.max_running_req,
                max_extend_tokens=spec.max_extend_tokens,
                shared_prefix=spec.shared_prefix,
            ),
        )
        self.ctx = Context(page_size=spec.page_size, kv_pool=self.kv_pool, attn_backend=backend)
        self._staging = make_staging(self.device)
        self.sampler = Sampler(self.vocab_size, self.device)

    @property
    def num_pages(self) -> int:
        return self.kv_pool.num_pages

    @torch.inference_mode()
    def forward(self, forward_input: ForwardInput) -> BatchOutput:
        """Run one batch; its tokens may still be on the device when this returns.

        Out of memory fails the requests of this batch, nothing else.
        """
        self.page_table.apply(forward_input.batch.page_table_update)
        try:
            return self._forward(forward_input.batch, forward_input.previous)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            logger.error("batch of %d tokens ran out of memory: %s", forward_input.batch.num_tokens, error)
            return FailedOutput(len(forward_input.batch.reqs), "out of memory while computing this batch")

    def _forward(self, batch: Batch, previous: BatchOutput | None) -> BatchOutput:
        self._staging.begin()
        cells = stage_cells(batch.page_table_update, self._staging)
        inputs = stage_inputs(batch, self.page_table, self._staging)
        metadata = self.ctx.attn_backend.plan(batch, self._staging)
        self._staging.send()
        self.page_table.apply_on_device(cells)
        prev_tokens = self._previous_tokens(batch, inputs, previous)
        if prev_tokens is not None:
            fill_in_tokens(inputs, prev_tokens)
        hidden = self.model(inputs.input_ids, inputs.positions, self.ctx.with_step(metadata, inputs.out_loc))
        return self._sample(batch, hidden, inputs, prev_tokens)

    def _previous_tokens(self, batch: Batch, inputs: StepInputs, previous: BatchOutput | None) -> torch.Tensor | None:
        """[B] int32: for rows with a `prev_row`, the token that is still on the device; None if no row has one."""
        if batch.prev_rows.max() < 0:
            return None
        assert isinstance(previous, DeviceOutput | FailedOutput), "a row names a previous output that is not there"
        return previous.next_tokens.to(self.device)[inputs.prev_rows.clamp_min(0)]

    def _sample(
        self, batch: Batch, hidden: torch.Tensor, inputs: StepInputs, prev_tokens: torch.Tensor | None
    ) -> BatchOutput:
        rows = [row for row, req in enumerate(batch.reqs) if req.samples]
        prompt = self._prompt_logprobs(batch, hidden)
        last = hidden[inputs.last]
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
        begins = np.concatenate([[0], batch.extend_lens.cumsum()])
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
