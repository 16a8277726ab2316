"""An `EngineConfig` made definite for one model on one machine."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from minisgl.engine.config import EngineConfig
from minisgl.models.config import DTYPES, ModelConfig
from minisgl.utils.hardware import Hardware
from minisgl.utils.logging import get_logger

logger = get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class EngineSpec:
    """An `EngineConfig` with nothing left open. num_pages None: sized from the memory free after loading."""

    device: torch.device
    dtype: torch.dtype
    load_format: str
    attention_backend: str
    page_size: int
    num_pages: int | None
    memory_ratio: float
    max_running_req: int
    max_extend_tokens: int
    max_seq_len: int
    shared_prefix: bool


def resolve(
    config: EngineConfig, model: ModelConfig, hardware: Hardware, max_extend_tokens: int | None = None
) -> EngineSpec:
    """Turn every "auto" into a value for this model on this machine, and log what came out.

    max_extend_tokens: the most prompt tokens of a batch. None: as few as a CPU computes at full speed, for all who run
    wait meanwhile; a GPU needs more to be busy.
    """
    device = _resolve_device(config.device, hardware)
    spec = EngineSpec(
        device=device,
        dtype=_resolve_dtype(config.dtype, model.dtype, device, hardware),
        load_format=config.load_format,
        attention_backend="torch" if config.attention_backend == "auto" else config.attention_backend,
        page_size=config.page_size,
        num_pages=config.num_page_override,
        memory_ratio=config.memory_ratio or (0.9 if device.type == "cuda" else 0.5),
        max_running_req=config.max_running_req,
        max_extend_tokens=max_extend_tokens or (512 if device.type == "cpu" else 2048),
        max_seq_len=_resolve_max_seq_len(config.max_seq_len_override, model.max_position_embeddings),
        shared_prefix=config.shared_prefix == "auto",
    )
    logger.info("resolved: %s", spec)
    return spec


def _resolve_device(name: str, hardware: Hardware) -> torch.device:
    if name == "cuda" and not hardware.gpus:
        raise ValueError("device='cuda', but torch finds no CUDA device; use device='cpu' or a CUDA build of torch")
    return torch.device("cuda", torch.cuda.current_device()) if name != "cpu" and hardware.gpus else torch.device("cpu")


def _resolve_dtype(name: str, checkpoint: torch.dtype | None, device: torch.device, hardware: Hardware) -> torch.dtype:
    """auto: the checkpoint's, but 16-bit formats only where the hardware computes them fast, and then bfloat16."""
    if name != "auto":
        return DTYPES[name]
    fast = device.type == "cuda" or hardware.has_fast_bfloat16
    return torch.bfloat16 if fast and checkpoint is not torch.float32 else torch.float32


def _resolve_max_seq_len(wanted: int | None, supported: int) -> int:
    if wanted is not None and wanted > supported:
        raise ValueError(f"max_seq_len_override={wanted} is over the model's context of {supported} tokens")
    return wanted or supported
