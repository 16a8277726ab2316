"""Logits equal those of transformers for models made here: grouped heads, head dims unlike hidden size / heads."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.dense_attention import all_logits, make_model
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3Config

SHAPE: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 48,
    "intermediate_size": 72,
    "num_hidden_layers": 3,
    "max_position_embeddings": 128,
    "initializer_range": 0.2,
}
CONFIGS = {
    "llama with one KV head for three": LlamaConfig(**SHAPE, num_attention_heads=3, num_key_value_heads=1, head_dim=24),
    "llama with a KV head for each": LlamaConfig(**SHAPE, num_attention_heads=4, num_key_value_heads=4),
    "llama with biases, tied": LlamaConfig(
        **SHAPE, num_attention_heads=4, num_key_value_heads=2, attention_bias=True, mlp_bias=True,
        tie_word_embeddings=True,
    ),
    "qwen3": Qwen3Config(**SHAPE, num_attention_heads=6, num_key_value_heads=2, head_dim=24),
    "qwen3 with biases": Qwen3Config(
        **SHAPE, num_attention_heads=2, num_key_value_heads=1, head_dim=16, attention_bias=True
    ),
}  # fmt: skip
IDS = torch.randint(0, 96, (50,), generator=torch.Generator().manual_seed(1)).tolist()


def reference(config: Any) -> Any:
    """A random model of transformers, its norms and biases too (they start as ones and zeros)."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    for name, weight in model.named_parameters():
        if weight.dim() == 1:
            torch.nn.init.normal_(weight, mean=float(name.endswith("norm.weight")), std=0.3)
    return model


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_logits_equal_those_of_transformers(config: Any):
    theirs = reference(config)
    hf_config = theirs.config.to_dict() | {"architectures": [type(theirs).__name__]}
    weights = [
        item for item in theirs.state_dict().items() if item[0] != "lm_head.weight" or not config.tie_word_embeddings
    ]
    with torch.inference_mode():
        expected = theirs(torch.tensor([IDS])).logits[0]

    ours = all_logits(make_model(hf_config, weights), IDS)

    assert expected.std() > 0.3, "logits too flat to tell anything"
    torch.testing.assert_close(ours, expected, atol=1e-3, rtol=0)
