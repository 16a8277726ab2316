"""What the engine is built from: the model, where it runs, and how much memory it may take."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from minisgl.models.config import DTYPES, ModelConfig
from minisgl.utils.hardware import Hardware
from minisgl.utils.logging import get_logger
from minisgl.utils.options import check_choices, check_minimum, option

logger = get_logger(__name__)
COMPUTE_DTYPES = ("float32", "bfloat16")  # a checkpoint in float16 is converted


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """As the user wrote it; `resolve` turns "auto" and None into values. A wrong value is a ValueError here."""

    model: str = option("smollm2", "an alias (see `minisgl pull`), a local folder, a .gguf file or a Hugging Face id")
    device: str = option("auto", "auto takes a GPU if there is one", choices=("auto", "cpu", "cuda"))
    dtype: str | torch.dtype = option("auto", "of weights, activations and KV", choices=("auto", *COMPUTE_DTYPES))
    load_format: str = option("auto", "dummy makes random weights of the configured shape", choices=("auto", "dummy"))
    attention_backend: str = option("auto", "which attention implementation", choices=("auto", "torch"))
    page_size: int = option(1, "tokens a page of the KV pool holds; whole pages are cached", minimum=1)
    num_page_override: int | None = option(
        None, "pages in the KV pool (default: from the memory ratio)", flag="num-pages", minimum=1
    )
    memory_ratio: float | None = option(
        None, "share of the memory free after loading that the KV pool may take (default: 0.5 on a CPU, 0.9 on a GPU)"
    )
    max_running_req: int = option(64, "requests that run at the same time", flag="max-running", minimum=1)
    max_seq_len_override: int | None = option(
        None, "context length in tokens (default: the model's)", flag="max-seq-len", minimum=1
    )
    cuda_graph_max_bs: int | None = option(
        None, "largest decode batch captured as a CUDA graph; only 0 (none) is supported yet", minimum=0
    )
    tensor_parallel_size: int = option(1, "GPUs that share the model; only 1 is supported yet", minimum=1)

    def __post_init__(self) -> None:
        if isinstance(self.dtype, torch.dtype):
            object.__setattr__(self, "dtype", str(self.dtype).removeprefix("torch."))
        check_choices(self)
        check_minimum(self)
        ratio = self.memory_ratio
        if ratio is not None and (not isinstance(ratio, int | float) or not 0 < ratio <= 1):
            raise ValueError(f"memory_ratio={ratio!r} is not a number in (0, 1]")
        for name, only in (("tensor_parallel_size", 1), ("cuda_graph_max_bs", 0)):
            if getattr(self, name) not in (only, None):
                raise ValueError(f"{name}={getattr(self, name)} is not supported yet; only {only} is")


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
    max_seq_len: int


def resolve(config: EngineConfig, model: ModelConfig, hardware: Hardware) -> EngineSpec:
    """Turn every "auto" into a value for this model on this machine, and log what came out."""
    device = _resolve_device(config.device, hardware)
    spec = EngineSpec(
        device=device,
        dtype=_resolve_dtype(str(config.dtype), model.dtype, device, hardware),
        load_format=config.load_format,
        attention_backend="torch" if config.attention_backend == "auto" else config.attention_backend,
        page_size=config.page_size,
        num_pages=config.num_page_override,
        memory_ratio=config.memory_ratio or (0.9 if device.type == "cuda" else 0.5),
        max_running_req=config.max_running_req,
        max_seq_len=_resolve_max_seq_len(config.max_seq_len_override, model.max_position_embeddings),
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
