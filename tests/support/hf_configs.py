"""The keys that every config of Hugging Face has, to which a test adds its own."""

from __future__ import annotations

from typing import Any

from minisgl.models import ModelConfig

MINIMAL: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "max_position_embeddings": 512,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "vocab_size": 512,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}


def read(**changes: Any) -> ModelConfig:
    """What is made of them with these changes."""
    return ModelConfig.from_hf(MINIMAL | changes)
