"""An `EngineConfig` made definite for one model on one machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from minisgl.attention import flashinfer_calls, triton_backend
from minisgl.distributed import TPInfo
from minisgl.engine.config import EngineConfig
from minisgl.engine.determinism import resolve_deterministic
from minisgl.engine.quantization import resolve_quantization
from minisgl.kernel import cpu_library, cpu_ops, triton
from minisgl.models.base import check_shares
from minisgl.models.config import DTYPES, ModelConfig
from minisgl.utils.hardware import Gpu, Hardware
from minisgl.utils.logging import get_logger

logger = get_logger(__name__)
GPU_BACKENDS = ("triton", "flashinfer")  # whose forward passes of decodes a CUDA graph can capture
MAX_GRAPH_SIZE = 256


@dataclass(frozen=True, kw_only=True)
class EngineSpec:
    """An `EngineConfig` with nothing left open. num_pages None: sized from the memory free after loading.

    tp: which rank this is of those that share the model; they have joined no group yet.
    """

    device: torch.device
    dtype: torch.dtype
    load_format: str
    quantization: str
    deterministic: bool
    attention_backend: str
    page_size: int
    num_pages: int | None
    memory_ratio: float
    max_running_req: int
    max_extend_tokens: int
    max_seq_len: int
    shared_prefix: bool
    cuda_graph_max_bs: int
    tp: TPInfo


def resolve(
    config: EngineConfig,
    model: ModelConfig,
    hardware: Hardware,
    max_extend_tokens: int | None = None,
    rank: int = 0,
    is_gguf: bool = False,
) -> EngineSpec:
    """Turn every "auto" into a value for this model on this machine, and log what came out.

    max_extend_tokens: the most prompt tokens of a batch. None: as few as a CPU computes at full speed, for all who run
    wait meanwhile; a GPU needs more to be busy. is_gguf: whether the weights come from a GGUF file.
    """
    tp = TPInfo(rank, config.tensor_parallel_size)
    check_shares(model, tp)
    device = _resolve_device(config.device, hardware, tp)
    on_gpu = device.type == "cuda"
    dtype = _resolve_dtype(config.dtype, model.dtype, device, hardware)
    max_running_req = config.max_running_req or (256 if on_gpu else 64)
    max_extend_tokens = max_extend_tokens or (2048 if on_gpu else 512)
    backend = resolve_backend(config.attention_backend, on_gpu)
    if backend == "flashinfer":
        flashinfer_calls.check_supported(dtype, model.head_dim, model.windows, model.attn_softcap, model.attn_sinks)
    gpus = hardware.gpus[: tp.size] if tp.size > 1 else hardware.gpus[device.index or 0 :][:1]
    if backend == "triton" and not _triton_can(config, model, gpus, max_running_req + max_extend_tokens):
        backend = "torch"
    spec = EngineSpec(
        device=device,
        dtype=dtype,
        load_format=config.load_format,
        quantization=resolve_quantization(config.quantization, is_gguf, dtype, device, model, tp),
        deterministic=resolve_deterministic(config.deterministic, device, backend),
        attention_backend=backend,
        page_size=config.page_size,
        num_pages=config.num_page_override,
        memory_ratio=config.memory_ratio or (0.9 if on_gpu else 0.5),
        max_running_req=max_running_req,
        max_extend_tokens=max_extend_tokens,
        max_seq_len=_resolve_max_seq_len(config.max_seq_len_override, model.max_position_embeddings),
        shared_prefix=config.shared_prefix == "auto",
        cuda_graph_max_bs=_resolve_graphs(config.cuda_graph_max_bs, backend, max_running_req),
        tp=tp,
    )
    logger.info("resolved: %s", spec)
    return spec


def _resolve_device(name: str, hardware: Hardware, tp: TPInfo) -> torch.device:
    """One GPU a rank; on a CPU the ranks share the cores."""
    if name == "cuda" and not hardware.gpus:
        raise ValueError("device='cuda', but torch finds no CUDA device; use device='cpu' or a CUDA build of torch")
    if name == "cpu" or not hardware.gpus:
        return torch.device("cpu")
    if tp.size > len(hardware.gpus):
        raise ValueError(f"tensor_parallel_size={tp.size}, but torch finds {len(hardware.gpus)} CUDA devices")
    return torch.device("cuda", torch.cuda.current_device() if tp.size == 1 else tp.rank)


def resolve_backend(name: str, on_gpu: bool) -> str:
    """The attention backend. auto: our own kernels where Triton is, which comes with torch's builds for CUDA, and on a
    CPU where they could be compiled.

    ValueError for one that this machine does not have.
    """
    if name == "auto":
        if on_gpu:
            return "triton" if triton.in_use() else "torch"
        return "cpu" if cpu_ops.in_use() else "torch"
    if name in GPU_BACKENDS and not on_gpu:
        raise ValueError(f"attention_backend={name!r} runs on GPUs only; on a CPU it is 'cpu' or 'torch'")
    if name == "cpu" and on_gpu:
        raise ValueError("attention_backend='cpu' runs on CPUs only; on a GPU it is 'triton', 'flashinfer' or 'torch'")
    if name == "cpu" and not cpu_ops.in_use():
        raise ValueError("attention_backend='cpu' needs the C++ kernels, and MINISGL_KERNELS other than torch")
    if name == "triton" and not triton.in_use():
        raise ValueError("attention_backend='triton' needs the package triton, and MINISGL_KERNELS other than torch")
    if name == "flashinfer":
        flashinfer_calls.check_installed()
    return name


def _triton_can(config: EngineConfig, model: ModelConfig, gpus: Sequence[Gpu], num_tokens: int) -> bool:
    """Whether our own kernels can attend for this model, one rank on each of these GPUs, in batches of so many tokens.
    ValueError if they cannot, and were asked for by name."""
    num_heads = (model.num_qo_heads + 2 * model.num_kv_heads) // len(gpus)
    try:
        triton_backend.check_supported(
            capability=min(gpu.capability for gpu in gpus),
            group=model.num_qo_heads // model.num_kv_heads,
            head_dim=model.head_dim,
            num_elements=num_tokens * num_heads * model.head_dim,
        )
    except ValueError as error:
        if config.attention_backend == "triton":
            raise
        logger.warning("attention by torch's operations instead of kernels of our own: %s", error)
        return False
    return True


def _resolve_graphs(wanted: int | None, backend: str, max_running_req: int) -> int:
    """The largest batch that is captured; 0: none, as for a backend whose forward passes cannot be."""
    if backend not in GPU_BACKENDS or not triton.in_use():
        if wanted:
            names = " or ".join(f"attention_backend={name}" for name in GPU_BACKENDS)
            raise ValueError(f"cuda_graph_max_bs={wanted} needs a GPU, Triton and {names}")
        return 0
    return min(max_running_req, MAX_GRAPH_SIZE if wanted is None else wanted)


def _resolve_dtype(name: str, checkpoint: torch.dtype | None, device: torch.device, hardware: Hardware) -> torch.dtype:
    if name != "auto":
        return DTYPES[name]
    return auto_dtype(checkpoint, device.type == "cuda", hardware)


def auto_dtype(checkpoint: torch.dtype | None, on_gpu: bool, hardware: Hardware) -> torch.dtype:
    """The checkpoint's, but 16-bit formats only where the hardware computes them fast, and then bfloat16."""
    if checkpoint is torch.float32:
        return torch.float32
    return torch.bfloat16 if on_gpu or _bfloat16_pays(hardware) else torch.float32


def _bfloat16_pays(hardware: Hardware) -> bool:
    """By the rates of our kernels; what the processor has decides where there are none."""
    chosen = cpu_library.choice()
    pays = None if chosen is None else chosen.bfloat16_pays
    return hardware.has_fast_bfloat16 if pays is None else pays


def _resolve_max_seq_len(wanted: int | None, supported: int) -> int:
    if wanted is not None and wanted > supported:
        raise ValueError(f"max_seq_len_override={wanted} is over the model's context of {supported} tokens")
    return wanted or supported
