"""Builds one engine with its scheduler and tokenizer. Nothing here is global, so several live in one process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from minisgl.core import Limits
from minisgl.engine.engine import Engine
from minisgl.engine.spec import resolve
from minisgl.llm.config import LLMConfig, resolve_overlap
from minisgl.models.checkpoint import open_checkpoint
from minisgl.models.config import ModelConfig
from minisgl.scheduler.cache_manager import CacheManager
from minisgl.scheduler.scheduler import Scheduler
from minisgl.tokenizer import Tokenizer, load_tokenizer
from minisgl.utils.hardware import find_hardware


@dataclass(frozen=True)
class Parts:
    """The pieces of an LLM."""

    engine: Engine
    tokenizer: Tokenizer
    scheduler: Scheduler
    limits: Limits
    end_token_ids: frozenset[int]
    overlap: bool
    max_extend_tokens: int


def assemble(config: LLMConfig, path: Path, progress: Callable[[str], None] = lambda stage: None) -> Parts:
    """Load the model at `path`, size the pool. ValueError for what cannot work, before any weight is read.

    progress: is told what is being done now.
    """
    progress("config and tokenizer")
    checkpoint = open_checkpoint(path, need_weights=config.engine.load_format != "dummy")
    model_config = ModelConfig.from_hf(checkpoint.hf_config())
    spec = resolve(config.engine, model_config, find_hardware(), config.scheduler.max_extend_tokens)
    tokenizer = load_tokenizer(path)
    progress("weights and KV pool")
    engine = Engine(spec, model_config, checkpoint)
    pool_len = engine.num_pages * spec.page_size
    limits = Limits(engine.vocab_size, spec.max_seq_len, pool_len, config.scheduler.heeds_priority)
    manager = CacheManager(
        engine.num_pages,
        spec.page_size,
        spec.max_running_req,
        spec.max_seq_len,
        config.scheduler.cache_type,
        config.scheduler.eviction,
    )
    overlap = resolve_overlap(config.scheduler, spec.device.type)
    end_token_ids = checkpoint.end_token_ids()
    scheduler = Scheduler(
        manager,
        limits,
        spec.max_extend_tokens,
        end_token_ids,
        alternates=not overlap,
        shared_prefix=spec.shared_prefix,
        reserve=config.scheduler.reserve,
        policy=config.scheduler.policy,
        max_overtakes=config.scheduler.max_overtakes,
        lookahead=config.scheduler.lookahead,
    )
    return Parts(engine, tokenizer, scheduler, limits, end_token_ids, overlap, spec.max_extend_tokens)
