"""Which quantisation a model is served with, of those that `EngineConfig` knows."""

from __future__ import annotations

import torch

from minisgl.distributed import TPInfo
from minisgl.kernel import cpu_ops
from minisgl.models.config import ModelConfig
from minisgl.utils.grouped_tensor import GROUP
from minisgl.utils.logging import get_logger

logger = get_logger(__name__)


def resolve_quantization(
    name: str, is_gguf: bool, dtype: torch.dtype, device: torch.device, model: ModelConfig, tp: TPInfo
) -> str:
    """none, gguf, int8 or int4. auto: gguf for a GGUF file in bfloat16 on a CPU with C++ kernels; none otherwise.

    ValueError that says why for one that cannot be served.
    """
    if name == "auto":
        suits = is_gguf and dtype == torch.bfloat16 and _uneven_share("gguf", model, tp) is None
        return auto_for_gguf(device.type) if suits else "none"
    if name == "none":
        return name
    if device.type != "cpu":
        raise ValueError(f"quantization={name!r} runs on a CPU only; on a GPU weights are floats (auto, none)")
    if name == "gguf" and not is_gguf:
        raise ValueError("quantization='gguf' takes the integers of a GGUF file, and this model is none; try int8")
    if reason := _uneven_share(name, model, tp):
        raise ValueError(f"quantization={name!r} takes groups of {GROUP} inputs: {reason}")
    if not cpu_ops.in_use():
        logger.warning("quantization=%r without kernels in C++ is computed by torch, and slow", name)
    return name


def auto_for_gguf(device_type: str) -> str:
    """What auto takes of a GGUF file in bfloat16."""
    return "gguf" if device_type == "cpu" and cpu_ops.in_use() else "none"


def _uneven_share(name: str, model: ModelConfig, tp: TPInfo) -> str | None:
    """What is no whole number of groups: a rank's part of a layer's inputs. A file's own tensors are, if not cut."""
    if name == "gguf" and tp.size == 1:
        return None
    sizes = {
        "num_qo_heads * head_dim": model.num_qo_heads * model.head_dim,
        "intermediate_size": model.intermediate_size,
    }
    if model.experts is not None:
        sizes["the inner size of experts"] = model.experts.inner_size
    shares = {"hidden_size": (model.hidden_size, 1), **{key: (size, tp.size) for key, size in sizes.items()}}
    for key, (size, ranks) in shares.items():
        if size // ranks % GROUP:
            parts = f" / {ranks} ranks = {size // ranks}" if ranks > 1 else ""
            return f"{key}={size}{parts} is no multiple of that"
    return None
