"""Tiny random models with experts, made by transformers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from gguf import get_tensor_name_map
from support.dense_models import WINDOW, YARN
from support.gguf_dense import ARCHITECTURES, dense_metadata, permuted
from support.gguf_variants import write_gguf
from support.tiny_model import SHAPE, make_tokenizer
from transformers import AutoModelForCausalLM, GptOssConfig, MixtralConfig, Qwen2MoeConfig, Qwen3MoeConfig

EXPERTS: dict[str, Any] = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 40}
# Some versions of transformers have these numbers in the model, and not in its config.
ANOTHER_GATE = {"swiglu_alpha": 1.0, "swiglu_limit": 0.7} if hasattr(GptOssConfig(), "swiglu_alpha") else {}
CONFIGS = {
    "qwen3-moe": Qwen3MoeConfig(**SHAPE, **EXPERTS, head_dim=16, norm_topk_prob=True),
    "qwen3-moe, not normalised, a dense layer": Qwen3MoeConfig(
        **SHAPE | {"num_hidden_layers": 3, "tie_word_embeddings": True}, **EXPERTS, head_dim=16, mlp_only_layers=[1]
    ),
    "qwen3-moe, experts in every second layer": Qwen3MoeConfig(
        **SHAPE, **EXPERTS, head_dim=16, norm_topk_prob=True, decoder_sparse_step=2
    ),
    "qwen2-moe": Qwen2MoeConfig(**SHAPE, **EXPERTS, shared_expert_intermediate_size=56, head_dim=16),
    "qwen2-moe, normalised, a dense layer": Qwen2MoeConfig(
        **SHAPE | {"num_hidden_layers": 3}, **EXPERTS, shared_expert_intermediate_size=56, norm_topk_prob=True,
        head_dim=16, mlp_only_layers=[0],
    ),
    "qwen2-moe, a window in every second layer": Qwen2MoeConfig(
        **SHAPE, **EXPERTS, **WINDOW, shared_expert_intermediate_size=56, head_dim=16, use_sliding_window=True
    ),
    "qwen3-moe, a window": Qwen3MoeConfig(**SHAPE, **EXPERTS, **WINDOW, head_dim=16, use_sliding_window=True),
    "mixtral": MixtralConfig(**SHAPE, num_local_experts=5, num_experts_per_tok=2, head_dim=16),
    "mixtral, a window": MixtralConfig(
        **SHAPE, **WINDOW, num_local_experts=5, num_experts_per_tok=2, head_dim=16
    ),
    "gpt-oss": GptOssConfig(
        **SHAPE, **WINDOW, num_local_experts=5, num_experts_per_tok=2, head_dim=16,
        rope_parameters=YARN | {"factor": 16.0, "truncate": False},
    ),
    "gpt-oss, a window in listed layers, tied, another gate": GptOssConfig(
        **SHAPE | {"tie_word_embeddings": True}, **WINDOW, num_local_experts=5, num_experts_per_tok=2, head_dim=16,
        attention_bias=False, **ANOTHER_GATE, layer_types=["full_attention", "sliding_attention"],
        rope_parameters={"rope_type": "default", "rope_theta": 1e4},
    ),
}  # fmt: skip

IN_GGUF = ("qwen3-moe", "qwen2-moe", "mixtral", "gpt-oss")
"""Those of `CONFIGS` that llama.cpp's converter takes, too: all layers have experts."""


def make_expert_model(config: Any) -> Any:
    """With random norms and biases too, which start as ones and zeros."""
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    for name, weight in model.named_parameters():
        if weight.dim() == 1 or name.endswith("_bias"):
            torch.nn.init.normal_(weight, mean=float(name.endswith("norm.weight")), std=0.3)
        elif weight.dim() == 3:
            torch.nn.init.normal_(weight, std=0.3)
    return model


def save_expert_model(config: Any, folder: Path, stacked: bool = False) -> Path:
    """With a byte tokenizer. stacked: the experts' weights as transformers has them in memory."""
    make_expert_model(config).save_pretrained(folder, save_original_format=not stacked)
    make_tokenizer().save_pretrained(folder)
    return folder


def write_expert_gguf(
    path: Path, model: Any, choose: Callable[[str], str] = lambda name: "F32", stacked: bool = True
) -> Path:
    """As llama.cpp's converter writes a model of transformers: what is left out there is left out here.

    choose: the type of a stack of experts by its name. stacked: False writes a matrix each, as before April 2024.
    """
    config = model.config
    kind = {"mixtral": "llama", "gpt_oss": "gpt-oss"}.get(config.model_type, config.model_type.replace("_", ""))
    names = get_tensor_name_map(ARCHITECTURES[kind], config.num_hidden_layers)
    tensors = {}
    for key, value in model.state_dict().items():
        if ".experts." in key or key.endswith(".sinks"):
            tensors |= {
                f"{names.get_name(part)}.{end}": tensor for part, end, tensor in _expert_parts(key, value, kind)
            }
        elif not (config.tie_word_embeddings and key == "lm_head.weight"):
            name = names.get_name(key, (".weight", ".bias"))
            tensors[name] = permuted(config, key, value).squeeze()
    metadata = dense_metadata(config) | {
        "expert_count": getattr(config, "num_local_experts", None) or config.num_experts,
        "expert_used_count": config.num_experts_per_tok,
    }
    if kind != "llama":
        inner_size = config.intermediate_size if kind == "gpt-oss" else config.moe_intermediate_size
        metadata["expert_feed_forward_length"] = inner_size
    if kind == "qwen2moe":
        metadata["expert_shared_feed_forward_length"] = config.shared_expert_intermediate_size
    named = {f"{kind}.{key}": value for key, value in metadata.items()}
    typed = {key: (value.contiguous(), choose(key) if value.dim() == 3 else "F32") for key, value in tensors.items()}
    if not stacked:
        typed = dict(_unstacked(typed))
    return write_gguf(path, {"general.architecture": kind, **named}, typed)


def _expert_parts(key: str, value: torch.Tensor, kind: str) -> Iterator[tuple[str, str, torch.Tensor]]:
    """What there is by itself in a GGUF file of a tensor of transformers: Hugging Face's name, its end, and values.

    In GPT-OSS, matrices are transposed there, and rows of gate and up alternate.
    """
    name, end = key.removesuffix("_bias"), "bias" if key.endswith("_bias") else "weight"
    if kind == "gpt-oss" and value.dim() == 3:
        value = value.mT
    if not name.endswith("gate_up_proj"):
        yield name, end, value
        return
    pair = (value[:, ::2], value[:, 1::2]) if kind == "gpt-oss" else value.chunk(2, dim=1)
    for part, values in zip(("gate", "up"), pair, strict=True):
        yield name.replace("gate_up", part), end, values


def _unstacked(tensors: Mapping[str, tuple[torch.Tensor, str]]) -> Iterator[tuple[str, tuple[torch.Tensor, str]]]:
    for name, (tensor, kind) in tensors.items():
        if tensor.dim() < 3:
            yield name, (tensor, kind)
        else:
            yield from ((name.replace("_exps", f".{i}"), (matrix, kind)) for i, matrix in enumerate(tensor))
