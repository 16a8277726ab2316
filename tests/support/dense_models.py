"""Tiny random models without experts, made by transformers: one of every architecture and of every variant of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from support.tiny_model import make_tokenizer
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3Config,
    Gemma3TextConfig,
    GraniteConfig,
    LlamaConfig,
    MistralConfig,
    Olmo2Config,
    Olmo3Config,
    Phi3Config,
    Qwen2Config,
    Qwen3Config,
    SmolLM3Config,
)

SHAPE: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 72,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
    "bos_token_id": 256,
    "eos_token_id": 257,
    "pad_token_id": None,
    "tie_word_embeddings": False,
}
# The original context is shorter than any text of a test, so that both transformers and we take the long factors.
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
    "long_factor": [1.0, 2.0, 4.0, 8.0, 16.0, 32.0],
    "partial_rotary_factor": 0.75,
}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "original_max_position_embeddings": 32}
LLAMA3 = YARN | {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
CAPS: dict[str, Any] = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}  # low, so that they matter
MULTIPLIERS = {
    "embedding_multiplier": 3.0,
    "attention_multiplier": 0.4,
    "residual_multiplier": 0.6,
    "logits_scaling": 1.7,
}
VISION = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 8,
}
WINDOW: dict[str, Any] = {"sliding_window": 12}  # shorter than what prompts of the tests share
CONFIGS: dict[str, Any] = {
    "llama": LlamaConfig(**SHAPE),
    "llama, one KV head for four, a wide head": LlamaConfig(**SHAPE | {"num_attention_heads": 8}, head_dim=24),
    "llama, biases, tied": LlamaConfig(**SHAPE | {"tie_word_embeddings": True}, attention_bias=True, mlp_bias=True),
    "llama, rope llama3": LlamaConfig(**SHAPE, rope_parameters=LLAMA3),
    "llama, rope dynamic": LlamaConfig(
        **SHAPE, rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}
    ),
    "mistral, a wide head": MistralConfig(**SHAPE, head_dim=24, sliding_window=None),
    "mistral, a window": MistralConfig(**SHAPE, **WINDOW),
    "qwen2": Qwen2Config(**SHAPE),
    "qwen2, a window in later layers": Qwen2Config(**SHAPE, **WINDOW, use_sliding_window=True, max_window_layers=1),
    "qwen2, tied, rope yarn": Qwen2Config(**SHAPE | {"tie_word_embeddings": True}, rope_parameters=YARN),
    "qwen3": Qwen3Config(**SHAPE, head_dim=24),
    "qwen3, biases": Qwen3Config(**SHAPE, head_dim=16, attention_bias=True),
    "qwen3, a window in listed layers": Qwen3Config(
        **SHAPE, **WINDOW, use_sliding_window=True, layer_types=["sliding_attention", "full_attention"]
    ),
    "smollm3, every second layer without positions, tied": SmolLM3Config(
        **SHAPE | {"tie_word_embeddings": True}, no_rope_layer_interval=2
    ),
    "smollm3, listed layers without positions, rope yarn": SmolLM3Config(
        **SHAPE, no_rope_layers=[0, 1], rope_parameters=YARN | {"mscale": 1.4, "mscale_all_dim": 0.7}
    ),
    "smollm3, a window in layers without positions": SmolLM3Config(
        **SHAPE, **WINDOW, use_sliding_window=True, no_rope_layer_interval=2
    ),
    "phi3": Phi3Config(**SHAPE),
    "phi3, a window": Phi3Config(**SHAPE, **WINDOW),
    "phi3, a part of a head turns, rope longrope, tied": Phi3Config(
        **SHAPE | {"tie_word_embeddings": True}, original_max_position_embeddings=2, rope_parameters=LONGROPE
    ),
    "olmo2": Olmo2Config(**SHAPE),
    "olmo2, a KV head for each, biases": Olmo2Config(**SHAPE | {"num_key_value_heads": 4}, attention_bias=True),
    "olmo3": Olmo3Config(**SHAPE | {"num_hidden_layers": 4}, **WINDOW),
    "olmo3, a window in listed layers, rope yarn in the others": Olmo3Config(
        **SHAPE,
        **WINDOW,
        layer_types=["full_attention", "sliding_attention"],
        rope_parameters={
            "full_attention": YARN,
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e3},
        },
    ),
    "granite": GraniteConfig(**SHAPE),
    "granite, multipliers": GraniteConfig(**SHAPE, **MULTIPLIERS),
    "granite, biases, tied": GraniteConfig(**SHAPE | {"tie_word_embeddings": True}, attention_bias=True, mlp_bias=True),
    "gemma2": Gemma2Config(**SHAPE | CAPS, **WINDOW, head_dim=24, query_pre_attn_scalar=20),
    "gemma2, tied, biases, listed layers, no caps": Gemma2Config(
        **SHAPE | {"tie_word_embeddings": True, "attn_logit_softcapping": None, "final_logit_softcapping": None},
        **WINDOW,
        head_dim=16,
        attention_bias=True,
        layer_types=["full_attention", "sliding_attention"],
    ),
    "gemma3": Gemma3TextConfig(
        **SHAPE | {"num_hidden_layers": 3},
        **WINDOW,
        head_dim=24,
        query_pre_attn_scalar=20,
        sliding_window_pattern=2,
    ),
    "gemma3, tied, rope linear, logits capped": Gemma3TextConfig(
        **SHAPE | {"tie_word_embeddings": True},
        **WINDOW,
        head_dim=16,
        final_logit_softcapping=3.0,
        layer_types=["full_attention", "sliding_attention"],
        rope_parameters={
            "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e3},
        },
    ),
    "gemma3-images, the part for text": Gemma3Config(
        text_config=Gemma3TextConfig(**SHAPE, **WINDOW, head_dim=24, sliding_window_pattern=2).to_dict(),
        vision_config=VISION,
        tie_word_embeddings=False,
    ),
}


def make_dense_model(config: Any) -> Any:
    """A random model of transformers, its norms and biases too (they start as ones and zeros)."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    for name, weight in model.named_parameters():
        if weight.dim() == 1:
            torch.nn.init.normal_(weight, mean=float(name.endswith("norm.weight")), std=0.3)
    return model


def save_dense_model(config: Any, folder: Path) -> Path:
    """With a byte tokenizer."""
    make_dense_model(config).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder
