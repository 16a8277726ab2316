"""Builds one engine with its scheduler and tokenizer. Nothing here is global, so several live in one process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from minisgl.core import Forward, Limits
from minisgl.distributed import SINGLE, TPInfo
from minisgl.engine.engine import Engine
from minisgl.engine.spec import EngineSpec, resolve
from minisgl.kvcache.capacity_curve import CapacityCurve
from minisgl.llm.config import LLMConfig, resolve_overlap
from minisgl.message import Inbox
from minisgl.models.checkpoint import Checkpoint, open_checkpoint
from minisgl.models.config import ModelConfig
from minisgl.models.gguf_checkpoint import GGUFCheckpoint
from minisgl.models.sampling_defaults import Defaults
from minisgl.scheduler.cache_manager import CacheManager
from minisgl.scheduler.scheduler import Scheduler
from minisgl.scheduler.trace import Trace, check_trace
from minisgl.tokenizer import Tokenizer, end_token_ids, load_tokenizer
from minisgl.utils.gguf_header import GGUFHeader
from minisgl.utils.hardware import find_hardware
from minisgl.utils.logging import get_logger
from minisgl.utils.lone_thread import LoneThread
from minisgl.utils.malloc import return_free_memory

if TYPE_CHECKING:
    from minisgl.llm.tensor_parallel import Leader

logger = get_logger(__name__)
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Model:
    """A model whose weights are still to be read, and what becomes of the configuration with it here."""

    checkpoint: Checkpoint
    config: ModelConfig
    spec: EngineSpec

    def load(self, tp: TPInfo) -> Engine:
        """tp: the same rank as in `spec`, now in touch with the others."""
        return Engine(replace(self.spec, tp=tp), self.config, self.checkpoint)


@dataclass(frozen=True)
class Parts:
    """The pieces of an LLM.

    sampling_defaults: as the model's files advise. leader: of the other ranks, if there are any.
    """

    engine: Engine
    tokenizer: Tokenizer
    scheduler: Scheduler
    limits: Limits
    end_token_ids: frozenset[int]
    overlap: bool
    max_extend_tokens: int
    sampling_defaults: Defaults
    leader: Leader | None = None
    trace: Trace | None = None

    @property
    def forward(self) -> Forward:
        """On all ranks."""
        return self.leader.forward if self.leader else self.engine.forward

    def watched(self, inbox: Inbox) -> Inbox:
        """The inbox; its reader learns besides when another rank has died."""
        return self.leader.watched(inbox) if self.leader else inbox

    def when_stuck(self, function: Callable[[str], None]) -> None:
        """Call it with the reason, in another thread, when other ranks failed and this one waits for its device."""
        if self.leader:
            self.leader.when_stuck(function)

    def kill_ranks(self) -> None:
        """End the other ranks at once, and leave all else as it is: this process ends too."""
        if self.leader:
            self.leader.kill_ranks()

    def end_trace(self) -> None:
        """Write what is left of it, if there is one."""
        if self.trace:
            self.trace.close()

    def close(self) -> None:
        """End the other ranks and the trace, and give the device's memory back. May be called twice."""
        self.end_trace()
        if self.leader:
            self.leader.close()
        self.engine.close()


def read_model(config: LLMConfig, path: Path, rank: int = 0) -> Model:
    """The model at `path` as this rank has it. ValueError for what cannot work here."""
    checkpoint = open_checkpoint(path, need_weights=config.engine.load_format != "dummy")
    try:
        model_config = ModelConfig.from_hf(checkpoint.hf_config())
    except ValueError as error:
        raise ValueError(f"{checkpoint.path}: {error}") from error
    spec = resolve(
        *(config.engine, model_config, find_hardware(), config.scheduler.max_extend_tokens, rank),
        is_gguf=gguf_header(checkpoint) is not None,
    )
    return Model(checkpoint, model_config.serve(spec.max_seq_len), spec)


def assemble(config: LLMConfig, path: Path, progress: Progress = lambda stage: None) -> Parts:
    """Load the model at `path`, size the pool. ValueError for what cannot work: before any weight is read, but for a
    tokenizer that is no good.

    The tokenizer is made meanwhile in a thread of its own.
    progress: is told what is being done now.
    """
    progress("config and tokenizer")
    if config.scheduler.trace is not None:
        check_trace(config.scheduler.trace)
    model = read_model(config, path)
    spec = model.spec
    _say_which_factors(model)
    ends, sampling_defaults = model.checkpoint.end_token_ids(), model.checkpoint.sampling_defaults()
    with LoneThread("minisgl-tokenizer") as beside:
        reading = beside.submit(_read_tokenizer, path, gguf_header(model.checkpoint))
        engine, leader = _load(model, config, path, progress)
    tokenizer, ends_of_text = reading.result()
    return_free_memory()
    ends |= ends_of_text
    pool_len = engine.num_pages * spec.page_size
    limits = Limits(
        engine.vocab_size,
        spec.max_seq_len,
        pool_len,
        heeds_priority=config.scheduler.heeds_priority,
        explains=config.scheduler.explain,
    )
    manager = CacheManager(
        engine.num_pages,
        spec.page_size,
        spec.max_running_req,
        spec.max_seq_len,
        config.scheduler.cache_type,
        config.scheduler.eviction,
        config.scheduler.num_ghost_tokens(pool_len),
    )
    overlap = resolve_overlap(config.scheduler, spec.device.type)
    has_curve = config.scheduler.explain and manager.prefix_cache.shares
    scheduler = Scheduler(
        manager,
        limits,
        spec.max_extend_tokens,
        ends,
        alternates=not overlap,
        shared_prefix=spec.shared_prefix,
        reserve=config.scheduler.reserve,
        policy=config.scheduler.policy,
        max_overtakes=config.scheduler.max_overtakes,
        lookahead=config.scheduler.lookahead,
        curve=CapacityCurve(engine.num_pages, spec.page_size) if has_curve else None,
    )
    return Parts(
        engine=engine,
        tokenizer=tokenizer,
        scheduler=scheduler,
        limits=limits,
        end_token_ids=ends,
        overlap=overlap,
        max_extend_tokens=spec.max_extend_tokens,
        sampling_defaults=sampling_defaults,
        leader=leader,
        trace=_start_trace(config.scheduler.trace, scheduler, pool_len),
    )


def _start_trace(path: str | None, scheduler: Scheduler, pool_len: int) -> Trace | None:
    if path is None:
        return None
    trace = Trace(path, pool_len)
    scheduler.recorder.send_to(trace.put)
    return trace


def gguf_header(checkpoint: Checkpoint) -> GGUFHeader | None:
    """Of a GGUF file, if the model is one: to be read once."""
    return checkpoint.file if isinstance(checkpoint, GGUFCheckpoint) else None


def _read_tokenizer(path: Path, header: GGUFHeader | None) -> tuple[Tokenizer, frozenset[int]]:
    """And the tokens that end a text as it has it."""
    tokenizer = load_tokenizer(path, header)
    return tokenizer, end_token_ids(tokenizer)


def _say_which_factors(model: Model) -> None:
    """Of longrope's: one set serves all texts, short ones too. Rank 0 says so for all."""
    rope = model.config.rope
    if rope.is_long(model.spec.max_seq_len):
        logger.warning(
            "all texts take the rotary factors for those over %d tokens; max_seq_len_override=%d takes the others",
            *(2 * (int(rope.original_max_position_embeddings),)),
        )


def _load(model: Model, config: LLMConfig, path: Path, progress: Progress) -> tuple[Engine, Leader | None]:
    size = model.spec.tp.size
    if size > 1:
        try:
            from minisgl.llm.tensor_parallel import load_on_all  # here, because one rank needs no sockets
        except ModuleNotFoundError as error:
            if error.name != "zmq":
                raise
            what = f"tensor_parallel_size={size} needs the extra `server`: pip install 'minisgl[server]'"
            raise ValueError(f"{what} (zmq is missing)") from error
        return load_on_all(model, config, path, progress)
    progress("weights and KV pool")
    return model.load(SINGLE), None
