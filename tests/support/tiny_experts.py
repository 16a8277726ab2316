"""Tiny random models with experts, made by transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from support.tiny_model import SHAPE, make_tokenizer
from transformers import AutoModelForCausalLM, MixtralConfig, Qwen2MoeConfig, Qwen3MoeConfig

EXPERTS: dict[str, Any] = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 40}
CONFIGS = {
    "qwen3-moe": Qwen3MoeConfig(**SHAPE, **EXPERTS, head_dim=16, norm_topk_prob=True),
    "qwen3-moe, not normalised, a dense layer": Qwen3MoeConfig(
        **SHAPE | {"num_hidden_layers": 3, "tie_word_embeddings": True}, **EXPERTS, head_dim=16, mlp_only_layers=[1]
    ),
    "qwen3-moe, experts in every second layer": Qwen3MoeConfig(
        **SHAPE, **EXPERTS, head_dim=16, norm_topk_prob=True, decoder_sparse_step=2
    ),
    "qwen2-moe, with a shared expert": Qwen2MoeConfig(
        **SHAPE | {"num_hidden_layers": 3}, **EXPERTS, shared_expert_intermediate_size=56, mlp_only_layers=[0],
        head_dim=16,
    ),
    "mixtral": MixtralConfig(**SHAPE, num_local_experts=5, num_experts_per_tok=2, head_dim=16),
}  # fmt: skip


def make_expert_model(config: Any) -> Any:
    """With random norms and biases too, which start as ones and zeros."""
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    for name, weight in model.named_parameters():
        if weight.dim() == 1:
            torch.nn.init.normal_(weight, mean=float(name.endswith("norm.weight")), std=0.3)
        elif weight.dim() == 3:
            torch.nn.init.normal_(weight, std=0.3)
    return model


def save_expert_model(config: Any, folder: Path, stacked: bool = False) -> Path:
    """With a byte tokenizer. stacked: the experts' weights as transformers has them in memory."""
    make_expert_model(config).save_pretrained(folder, save_original_format=not stacked)
    make_tokenizer().save_pretrained(folder)
    return folder
