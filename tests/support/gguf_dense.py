"""GGUF files of tiny models as llama.cpp's converter writes them, by the table of tensor names of the gguf package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from gguf import MODEL_ARCH_NAMES, get_tensor_name_map
from support.dense_models import CONFIGS, LONGROPE, SHAPE, YARN
from support.gguf_variants import write_gguf
from transformers import Phi3Config, SmolLM3Config

ARCHITECTURES = {name: arch for arch, name in MODEL_ARCH_NAMES.items()}
PERMUTED = ("llama", "mistral", "mixtral", "smollm3")
ATTENTION_FACTOR = 1.25
MODELS = {
    name: CONFIGS[name]
    for name in (
        *("llama, biases, tied", "mistral, a wide head", "qwen2, tied, rope yarn", "qwen3", "phi3", "phi3, a window"),
        "olmo2",
    )
} | {
    "smollm3, every fourth layer without positions": SmolLM3Config(**SHAPE | {"num_hidden_layers": 4}),
    "smollm3, rope yarn": SmolLM3Config(**SHAPE, rope_parameters=YARN),
    "phi3, a part of a head turns, rope longrope": Phi3Config(
        **SHAPE,
        original_max_position_embeddings=2,
        rope_parameters=LONGROPE | {"attention_factor": ATTENTION_FACTOR},
    ),
}


def write_dense_gguf(path: Path, model: Any) -> Path:
    """A model of transformers in float32. Of longrope, the factors are tensors and the attention factor is as above."""
    config = model.config
    name = "llama" if config.model_type == "mistral" else config.model_type
    names = get_tensor_name_map(ARCHITECTURES[name], config.num_hidden_layers)
    tensors = {
        names.get_name(key, (".weight", ".bias")): permuted(config, key, value)
        for key, value in model.state_dict().items()
        if not (config.tie_word_embeddings and key == "lm_head.weight")
    }
    rope = config.rope_parameters
    if rope["rope_type"] == "longrope":
        tensors |= {f"rope_factors_{kind}.weight": torch.tensor(rope[f"{kind}_factor"]) for kind in ("short", "long")}
    metadata = {f"{name}.{key}": value for key, value in dense_metadata(config).items()}
    typed = {key: (value, "F32") for key, value in tensors.items()}
    return write_gguf(path, {"general.architecture": name, **metadata}, typed)


def permuted(config: Any, key: str, value: torch.Tensor) -> torch.Tensor:
    part = key.split(".")[-2]
    if config.model_type not in PERMUTED or part not in ("q_proj", "k_proj"):
        return value
    heads = config.num_attention_heads if part == "q_proj" else config.num_key_value_heads
    halves = value.reshape(heads, 2, value.shape[0] // heads // 2, *value.shape[1:])
    return halves.swapaxes(1, 2).reshape(value.shape)


def dense_metadata(config: Any) -> dict[str, Any]:
    rope = config.rope_parameters
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
    if config.model_type == "phi3" and config.sliding_window:
        metadata["attention.sliding_window"] = config.sliding_window
    if rope["rope_type"] == "longrope":
        metadata["rope.scaling.original_context_length"] = rope["original_max_position_embeddings"]
        metadata["rope.scaling.attn_factor"] = ATTENTION_FACTOR
    if rope["rope_type"] == "yarn":
        metadata["rope.scaling.original_context_length"] = rope["original_max_position_embeddings"]
        metadata["rope.scaling.type"], metadata["rope.scaling.factor"] = "yarn", rope["factor"]
    return metadata
