"""GGUF files of tiny models as llama.cpp's converter writes them, by the table of tensor names of the gguf package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from gguf import MODEL_ARCH_NAMES, get_tensor_name_map
from support.dense_models import CAPS, CONFIGS, LONGROPE, SHAPE, WINDOW, YARN
from support.gguf_variants import write_gguf
from transformers import Gemma2Config, Gemma3TextConfig, Olmo3Config, Phi3Config, SmolLM3Config

ARCHITECTURES = {name: arch for arch, name in MODEL_ARCH_NAMES.items()}
WINDOWED = ("phi3", "gemma2", "gemma3_text", "olmo3", "gpt_oss")  # whose window the converter writes
PERMUTED = ("llama", "mistral", "mixtral", "smollm3", "granite")
ATTENTION_FACTOR = 1.25
BASE = {"rope_type": "default", "rope_theta": 1e3}
TIED = SHAPE | {"tie_word_embeddings": True}
MODELS = {
    name: CONFIGS[name]
    for name in (
        *(
            "llama, biases, tied",
            "mistral, a wide head",
            "qwen2",
            "qwen2, tied, rope yarn",
            "qwen3",
            "phi3",
            "phi3, a window",
        ),
        *("olmo2", "olmo3", "granite, multipliers"),
    )
} | {
    "olmo3, another base": Olmo3Config(
        **SHAPE, **WINDOW, rope_parameters={"full_attention": BASE, "sliding_attention": BASE}
    ),
    "gemma2": Gemma2Config(**TIED | CAPS, **WINDOW, head_dim=24, query_pre_attn_scalar=24),
    "gemma3, rope linear": Gemma3TextConfig(
        **TIED | {"num_hidden_layers": 7, "final_logit_softcapping": 3.0},
        **WINDOW,
        head_dim=24,
        query_pre_attn_scalar=24,
        rope_parameters={
            "full_attention": {"rope_type": "linear", "rope_theta": 1e5, "factor": 4.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    ),
    "smollm3, every fourth layer without positions": SmolLM3Config(**SHAPE | {"num_hidden_layers": 4}),
    "smollm3, rope yarn": SmolLM3Config(**SHAPE, rope_parameters=YARN),
    "phi3, a part of a head turns, rope longrope": Phi3Config(
        **SHAPE,
        original_max_position_embeddings=2,
        rope_parameters=LONGROPE | {"attention_factor": ATTENTION_FACTOR},
    ),
}


def write_dense_gguf(path: Path, model: Any, kind: str = "F32") -> Path:
    """A model of transformers. Of longrope, the factors are tensors and the attention factor is as above.

    kind: the type of its matrices; all else is float32.
    """
    config = model.config
    name = {"mistral": "llama", "gemma3_text": "gemma3", "olmo3": "olmo2"}.get(config.model_type, config.model_type)
    names = get_tensor_name_map(ARCHITECTURES[name], config.num_hidden_layers)
    tensors = {
        names.get_name(key, (".weight", ".bias")): permuted(config, key, value) + norm_offset(config, key)
        for key, value in model.state_dict().items()
        if not (config.tie_word_embeddings and key == "lm_head.weight")
    }
    rope = full_rope(config)
    if rope["rope_type"] == "longrope":
        tensors |= {f"rope_factors_{kind}.weight": torch.tensor(rope[f"{kind}_factor"]) for kind in ("short", "long")}
    metadata = {f"{name}.{key}": value for key, value in dense_metadata(config).items()}
    typed = {key: (value, kind if value.dim() == 2 else "F32") for key, value in tensors.items()}
    return write_gguf(path, {"general.architecture": name, **metadata}, typed)


def permuted(config: Any, key: str, value: torch.Tensor) -> torch.Tensor:
    part = key.split(".")[-2]
    if config.model_type not in PERMUTED or part not in ("q_proj", "k_proj"):
        return value
    heads = config.num_attention_heads if part == "q_proj" else config.num_key_value_heads
    halves = value.reshape(heads, 2, value.shape[0] // heads // 2, *value.shape[1:])
    return halves.swapaxes(1, 2).reshape(value.shape)


def norm_offset(config: Any, key: str) -> float:
    """Of the norms that the converter writes."""
    return 1.0 if config.model_type.startswith("gemma") and key.endswith("norm.weight") else 0.0


def full_rope(config: Any) -> dict[str, Any]:
    """The parameters of layers without a window."""
    rope: dict[str, Any] = config.rope_parameters
    return rope.get("full_attention", rope)


def dense_metadata(config: Any) -> dict[str, Any]:
    rope = full_rope(config)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    metadata = {
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "context_length": config.max_position_embeddings,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": head_dim,
        "rope.freq_base": rope["rope_theta"],
        "rope.dimension_count": int(head_dim * rope.get("partial_rotary_factor", 1)),
    }
    if config.model_type in WINDOWED and config.sliding_window:
        metadata["attention.sliding_window"] = config.sliding_window
    if config.model_type == "olmo3":
        is_local = [kind == "sliding_attention" for kind in config.layer_types]
        metadata["attention.sliding_window_pattern"] = is_local
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        if getattr(config, key, None):
            metadata[key] = getattr(config, key)
    if config.model_type == "granite":
        metadata["attention.scale"] = config.attention_multiplier
        metadata["embedding_scale"] = config.embedding_multiplier
        metadata["residual_scale"] = config.residual_multiplier
        metadata["logit_scale"] = config.logits_scaling
    if rope["rope_type"] == "longrope":
        metadata["rope.scaling.original_context_length"] = rope["original_max_position_embeddings"]
        metadata["rope.scaling.attn_factor"] = ATTENTION_FACTOR
    if rope["rope_type"] == "linear":
        metadata["rope.scaling.type"], metadata["rope.scaling.factor"] = "linear", rope["factor"]
    if rope["rope_type"] == "yarn":
        metadata["rope.scaling.original_context_length"] = rope["original_max_position_embeddings"]
        metadata["rope.scaling.type"], metadata["rope.scaling.factor"] = "yarn", rope["factor"]
    return metadata
