"""What a decoder model looks like, read from a Hugging Face config.json of either generation and checked at once.

Source: transformers 5.24, `configuration_llama.py` and `configuration_qwen3.py`, for the names and the defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from minisgl.models.registry import MODELS
from minisgl.models.rope import RopeConfig
from minisgl.models.values import count, flag, names, positive

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The shape of a model. Counts are those of the whole model, before tensor parallelism divides them.

    architecture: Hugging Face's class name. dtype: of the checkpoint. max_position_embeddings: the context length in
    tokens.
    """

    architecture: str
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_qo_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int
    rope: RopeConfig = field(default_factory=RopeConfig)
    rms_norm_eps: float = 1e-6
    attention_bias: bool = False
    mlp_bias: bool = False
    tie_word_embeddings: bool = False
    dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        if self.num_qo_heads % self.num_kv_heads != 0:
            raise ValueError(f"num_kv_heads={self.num_kv_heads} does not divide num_qo_heads={self.num_qo_heads}")
        if self.head_dim % 2 != 0:
            raise ValueError(f"head_dim={self.head_dim} is odd: rotary positions turn pairs")

    @classmethod
    def from_hf(cls, config: Mapping[str, Any]) -> ModelConfig:
        """The content of a config.json; nulls count as absent.

        ValueError that names what is missing, unknown or not supported here; nothing is ignored that changes logits.
        """
        config = _without_nulls(config)
        architecture = _architecture(config)
        _check_supported(config)
        num_qo_heads = count(config, "num_attention_heads")
        hidden_size = count(config, "hidden_size")
        return cls(
            architecture=architecture,
            num_layers=count(config, "num_hidden_layers"),
            hidden_size=hidden_size,
            intermediate_size=count(config, "intermediate_size"),
            num_qo_heads=num_qo_heads,
            num_kv_heads=count(config, "num_key_value_heads", num_qo_heads),
            head_dim=count(config, "head_dim", hidden_size // num_qo_heads),
            vocab_size=count(config, "vocab_size"),
            max_position_embeddings=count(config, "max_position_embeddings"),
            rope=RopeConfig.from_hf(config),
            rms_norm_eps=positive(config, "rms_norm_eps", 1e-6),
            attention_bias=flag(config, "attention_bias"),
            mlp_bias=flag(config, "mlp_bias"),
            tie_word_embeddings=flag(config, "tie_word_embeddings"),
            dtype=_dtype(config),
        )


def _without_nulls(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if value is not None}


def _architecture(config: Mapping[str, Any]) -> str:
    found = names(config, "architectures")
    if not found:
        raise ValueError("the model's config lacks 'architectures'")
    if len(found) != 1:
        raise ValueError(f"the model's config names {len(found)} architectures, {found}; exactly one is expected")
    MODELS[found[0]]  # an unknown name is a ValueError here, before any weight is read
    return found[0]


def _check_supported(config: Mapping[str, Any]) -> None:
    if (act := config.get("hidden_act", "silu")) != "silu":
        raise ValueError(f"hidden_act={act!r} is not supported; known: 'silu'")
    window, layer_types = config.get("sliding_window"), names(config, "layer_types")
    if window is not None and config.get("use_sliding_window", True):
        raise ValueError(f"sliding_window={window} is in use, and only full attention is supported")
    if other := sorted(set(layer_types) - {"full_attention"}):
        raise ValueError(f"layer_types has {', '.join(other)}, and only full_attention is supported")


def _dtype(config: Mapping[str, Any]) -> torch.dtype:
    name = str(config.get("dtype", config.get("torch_dtype", "float32"))).removeprefix("torch.")
    if name not in DTYPES:
        raise ValueError(f"dtype={name!r} is not supported; known: {', '.join(DTYPES)}")
    return DTYPES[name]
