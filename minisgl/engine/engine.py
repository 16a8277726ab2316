"""The device side: weights, KV pool, page table and sampler. One call, `forward`, runs one batch.

Shape letters: T tokens in the batch, B requests, N rows that sample, V vocabulary.
"""

from __future__ import annotations

import gc
import time
from dataclasses import replace
from itertools import takewhile

import numpy as np
import torch

from minisgl.attention import AttnConfig, AttnForm, create_attention_backend
from minisgl.core import Batch, BatchOutput, Context, ForwardInput, Req, TokenLogprobs
from minisgl.engine.graphs import host_bound, padded_sizes, prefill_batch, prompt_sizes
from minisgl.engine.inputs import PageTable, StepInputs
from minisgl.engine.logprobs import prompt_logprobs
from minisgl.engine.memory import MemoryAccount, check_page_table_size, make_kv_pool, measure
from minisgl.engine.output import DeviceOutput, FailedOutput
from minisgl.engine.sampler import SampleOutput, Sampler
from minisgl.engine.spec import EngineSpec
from minisgl.engine.step import Decoded, Step
from minisgl.engine.threads import place_threads
from minisgl.engine.timing import DeviceTimer, HostTimer, TimedOutput
from minisgl.engine.transfer import to_device
from minisgl.kernel import cpu_ops, mark_broken
from minisgl.kvcache.pool import MHAKVCache
from minisgl.models.checkpoint import Checkpoint
from minisgl.models.config import ModelConfig
from minisgl.models.loader import load_model
from minisgl.utils.logging import get_logger
from minisgl.utils.math import div_ceil
from minisgl.utils.memory import is_out_of_memory

logger = get_logger(__name__)
# Prompt positions whose logits exist at once: on a CPU 13 MB of SmolLM2's.
LOGITS_BLOCK = {"cpu": 64, "cuda": 256}


def attn_form(config: ModelConfig) -> AttnForm:
    """What a model's attention is, as its backend wants to know it."""
    return AttnForm(
        scale=config.head_dim**-0.5 if config.attn_scale is None else config.attn_scale,
        softcap=config.attn_softcap,
        windows=config.windows or (0,) * config.num_layers,
        sinks=config.attn_sinks,
    )


def wants_prompt_logprobs(batch: Batch) -> bool:
    """Whether any row of prompt tokens, which come last, has log-probabilities to give of what follows them."""
    prefills = takewhile(lambda req: req.is_prefill, reversed(batch.reqs))
    return any(req.sampling_params.prompt_logprobs is not None for req in prefills)


class Engine:
    """Owns every device tensor. Knows nothing of queues: it computes the batches that it is given, in order."""

    def __init__(self, spec: EngineSpec, model_config: ModelConfig, checkpoint: Checkpoint) -> None:
        self.spec = spec
        self.device = spec.device
        if self.device.type == "cpu":
            place_threads(spec.tp.rank, spec.tp.size)
        self._timer = HostTimer() if self.device.type == "cpu" else DeviceTimer()
        self.vocab_size = model_config.vocab_size
        row_len = div_ceil(spec.max_seq_len, spec.page_size)
        check_page_table_size(spec.max_running_req, row_len, self.device)
        self.memory = MemoryAccount(self.device)
        with self.memory.book("page table"):
            self.page_table = PageTable(spec.max_running_req, row_len, spec.page_size, self.device)
        with self.memory.book("weights"):
            self.model = load_model(
                *(checkpoint, model_config, spec.dtype, spec.device),
                tp=spec.tp,
                load_format=spec.load_format,
                quantization=spec.quantization,
                deterministic=spec.deterministic,
            )
        self.sampler = Sampler(self.vocab_size, self.device)
        reserved = measure(self._rehearse, self.device)
        with self.memory.book("KV pool"):
            self.kv_pool = make_kv_pool(spec, model_config, reserved)
        self.num_pages = self.kv_pool.num_pages
        with self.memory.book("graphs and workspaces"):
            self._step = self._make_step(self.kv_pool)
            self._capture()
        self.memory.log(reserved)

    @torch.inference_mode()
    def forward(self, forward_input: ForwardInput) -> BatchOutput:
        """Run one batch; its tokens may still be on the device when this returns.

        Out of memory fails the requests of this batch, nothing else.
        """
        batch = forward_input.batch
        ended = self._timer.begin() if forward_input.is_timed else None
        self.page_table.apply(batch.page_table_update)
        try:
            output = self._forward(batch)
            return TimedOutput(output, ended()) if ended is not None else output
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            logger.error("batch of %d tokens ran out of memory: %s", batch.num_tokens, error)
            self._step.last_tokens.fill_(-1)
            self.page_table.resend()
            return FailedOutput(len(batch.reqs), "out of memory while computing this batch")

    def computing_s(self) -> float:
        """Seconds that the host has spent in the place of a device: in C++ kernels, since they were loaded."""
        return cpu_ops.seconds_taken() if self.device.type == "cpu" else 0.0

    def close(self) -> None:
        """Give the memory back; nothing can be computed after this. May be called twice.

        NCCL does not end while a graph calls it, so this comes before the ranks part.
        """
        for name in ("_step", "kv_pool", "page_table", "model"):
            self.__dict__.pop(name, None)
        if self.device.type == "cuda":
            gc.collect()
            torch.cuda.empty_cache()

    # ---- building

    def _make_step(self, kv_pool: MHAKVCache) -> Step:
        spec, config = self.spec, self.model.config
        attn_config = AttnConfig(
            kv_pool=kv_pool,
            page_table=self.page_table.device,
            host_table=self.page_table.host,
            page_size=spec.page_size,
            num_qo_heads=spec.tp.shard("num_qo_heads", config.num_qo_heads),
            num_kv_heads=spec.tp.shard("num_kv_heads", config.num_kv_heads),
            head_dim=config.head_dim,
            form=attn_form(config),
            max_running_req=spec.max_running_req,
            shared_prefix=spec.shared_prefix,
        )
        backend = create_attention_backend(spec.attention_backend, attn_config)
        ctx = Context(page_size=spec.page_size, kv_pool=kv_pool, attn_backend=backend)
        return Step(self.model, self.page_table, ctx, self.sampler)

    @torch.inference_mode()
    def _rehearse(self) -> Step:
        """Run the largest batch of prompts and capture the largest graph, on a pool of one page."""
        spec = self.spec
        step = self._make_step(make_kv_pool(replace(spec, num_pages=1), self.model.config))
        batch = prefill_batch(spec.max_extend_tokens, spec.max_running_req, spec.max_seq_len)
        self._run(step, batch)
        self.sampler.warm_up(spec.dtype)
        if spec.cuda_graph_max_bs:
            step.capture([spec.cuda_graph_max_bs], spec.max_seq_len)
            step.capture_prompts(self._prompt_sizes(step)[-1:], spec.max_seq_len)
        return step

    @torch.inference_mode()
    def _capture(self) -> None:
        spec, started = self.spec, time.perf_counter()
        if not spec.cuda_graph_max_bs:
            return
        decodes = padded_sizes(spec.cuda_graph_max_bs)
        self._step.capture(decodes, spec.max_seq_len)
        prompts = host_bound(self._prompt_sizes(self._step), self._is_host_bound)
        self._step.capture_prompts(prompts, spec.max_seq_len)
        sizes, seconds = (len(decodes), len(prompts)), time.perf_counter() - started
        logger.info("graphs for %d sizes of decodes and %d of prompts captured in %.1f s", *sizes, seconds)

    def _is_host_bound(self, size: int) -> bool:
        """For all ranks: they must run the same."""
        return bool(self.spec.tp.least(int(self._step.is_host_bound(size, self.spec.max_seq_len))))

    def _prompt_sizes(self, step: Step) -> list[int]:
        """That may be worth a graph; none if the backend allows none."""
        spec = self.spec
        if not step.can_capture_prompts:
            return []
        return prompt_sizes(min(spec.max_extend_tokens, spec.max_running_req * spec.max_seq_len))

    # ---- running

    def _forward(self, batch: Batch) -> BatchOutput:
        decoded = None if wants_prompt_logprobs(batch) else self._step.replay(batch)
        output = self._run(self._step, batch) if decoded is None else self._take_decoded(batch, decoded)
        self._step.keep_staged_until(output.copied)
        return output

    def _take_decoded(self, batch: Batch, decoded: Decoded) -> DeviceOutput:
        """The output of a replayed batch. Rows that want more than a graph does are sampled again, call by call."""
        tokens, all_rows = decoded.tokens[: len(batch.reqs)], range(len(batch.reqs))
        rows = self.sampler.needs_more(batch.reqs)
        if not rows:
            return DeviceOutput(tokens, all_rows)
        index = to_device(rows, torch.int64, self.device)
        samples = self._sample(batch, rows, decoded.hidden[index], decoded.inputs.input_ids[index])
        tokens[index] = samples.tokens
        mark_broken(decoded.hidden[: len(tokens)], tokens)
        return DeviceOutput(tokens, all_rows, samples.logprobs, _tops(samples, rows))

    def _run(self, step: Step, batch: Batch) -> DeviceOutput:
        """Run any batch; what comes after the layers is launched call by call."""
        inputs, hidden = step.compute(batch)
        prompt = self._prompt_logprobs(batch, hidden)
        hidden, last_tokens = _last_of_each(batch, inputs, hidden)
        tokens = step.last_tokens[: len(batch.reqs)]
        rows = [row for row, req in enumerate(batch.reqs) if req.samples]
        if len(rows) == len(tokens):
            samples = self._sample(batch, rows, hidden, last_tokens)
            tokens.copy_(samples.tokens)
        else:
            index = to_device(rows, torch.int64, self.device)
            samples = self._sample(batch, rows, hidden[index], last_tokens[index])
            tokens.fill_(-1)[index] = samples.tokens
        mark_broken(hidden, tokens)  # a NaN in any of a row's tokens has come this far
        return DeviceOutput(tokens, frozenset(rows), samples.logprobs, _tops(samples, rows), prompt)

    def _sample(self, batch: Batch, rows: list[int], hidden: torch.Tensor, last_tokens: torch.Tensor) -> SampleOutput:
        """Of those rows of the batch, whose hidden states [N, H] and last tokens [N] these are."""
        return self.sampler.sample(self.model.compute_logits(hidden), [batch.reqs[row] for row in rows], last_tokens)

    def _prompt_logprobs(self, batch: Batch, hidden: torch.Tensor) -> tuple[tuple[TokenLogprobs, ...], ...]:
        """By row; empty when no row asks."""
        if not wants_prompt_logprobs(batch):
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
        size = LOGITS_BLOCK[self.device.type]
        for begin in range(0, len(targets), size):
            block = targets[begin : begin + size]
            logits = self.model.compute_logits(hidden[begin : begin + len(block)])
            found.extend(prompt_logprobs(logits.float(), block.to(self.device), top))
        return tuple(found)


def _last_of_each(batch: Batch, inputs: StepInputs, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Hidden state [B, H] and token id [B] of the last token of every request."""
    num_reqs = len(batch.reqs)
    if batch.num_tokens == num_reqs:
        return hidden[:num_reqs], inputs.input_ids[:num_reqs]
    last = inputs.last[:num_reqs]
    return hidden[last], inputs.input_ids[last]


def _tops(samples: SampleOutput, rows: list[int]) -> dict[int, int]:
    """How many best tokens are wanted, by row of the batch."""
    return {rows[i]: top for i, top in samples.logprob_tops.items()}
