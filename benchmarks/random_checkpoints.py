"""Checkpoints of any size with random weights, for measuring how they are loaded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFWriter
from safetensors.torch import save_file

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 32_000,
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10_000.0,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
}
NUM_EXPERTS, INNER = 8, 1408
OUTER = {"token_embd": "model.embed_tokens", "output": "lm_head", "output_norm": "model.norm"}
BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def write_safetensors(folder: Path, dtype: torch.dtype, num_bytes: int, num_shards: int) -> None:
    """A Llama of about `num_bytes` in `num_shards` files and their index."""
    config = CONFIG | {"num_hidden_layers": _num_layers(num_bytes / dtype.itemsize)}
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    shapes = {_hf_name(name): shape for name, shape in _shapes(config["num_hidden_layers"])}
    names = list(shapes)
    weight_map = {}
    generator = torch.Generator().manual_seed(0)
    for shard in range(num_shards):
        file = f"model-{shard + 1:05}-of-{num_shards:05}.safetensors"
        here = names[shard * len(names) // num_shards : (shard + 1) * len(names) // num_shards]
        save_file({name: _random(shapes[name], dtype, generator) for name in here}, folder / file)
        weight_map |= dict.fromkeys(here, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def write_gguf(path: Path, kind: str, num_bytes: int, experts: bool = False) -> None:
    """A Llama of about `num_bytes`, or a Mixtral; its matrices are of ggml's type `kind`, with random bits."""
    block_len, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    num_layers = _num_layers(num_bytes / block_bytes * block_len, experts)
    writer = GGUFWriter(path, "llama")
    metadata = {
        "block_count": num_layers,
        "context_length": CONFIG["max_position_embeddings"],
        "embedding_length": CONFIG["hidden_size"],
        "feed_forward_length": INNER if experts else CONFIG["intermediate_size"],
        "head_count": CONFIG["num_attention_heads"],
        "head_count_kv": CONFIG["num_key_value_heads"],
        "key_length": CONFIG["head_dim"],
        "layer_norm_rms_eps": CONFIG["rms_norm_eps"],
        "rope_freq_base": CONFIG["rope_theta"],
    } | ({"expert_count": NUM_EXPERTS, "expert_used_count": 2} if experts else {})
    for key, value in metadata.items():
        getattr(writer, f"add_{key}")(value)
    rng = np.random.default_rng(0)
    for name, shape in _shapes(num_layers, experts):
        if len(shape) == 1:
            writer.add_tensor(f"{name}.weight", np.ones(shape, np.float32))
            continue
        size = (*shape[:-1], shape[-1] // block_len * block_bytes)
        # Bits of which no half is infinite: what a number is does not change how long it takes.
        bits = rng.integers(0, 0x7B, size, np.uint8)
        writer.add_tensor(f"{name}.weight", bits, raw_dtype=GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _num_layers(num_parameters: float, experts: bool = False) -> int:
    outer, whole = (sum(int(np.prod(shape)) for _, shape in _shapes(layers, experts)) for layers in (0, 1))
    return max(1, round((num_parameters - outer) / (whole - outer)))


def _shapes(num_layers: int, experts: bool = False) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Tensors by GGUF's names, without .weight."""
    hidden, inner = CONFIG["hidden_size"], CONFIG["intermediate_size"]
    kv_size = CONFIG["num_key_value_heads"] * CONFIG["head_dim"]
    yield "token_embd", (CONFIG["vocab_size"], hidden)
    for layer in range(num_layers):
        yield f"blk.{layer}.attn_norm", (hidden,)
        yield f"blk.{layer}.attn_q", (hidden, hidden)
        yield f"blk.{layer}.attn_k", (kv_size, hidden)
        yield f"blk.{layer}.attn_v", (kv_size, hidden)
        yield f"blk.{layer}.attn_output", (hidden, hidden)
        yield f"blk.{layer}.ffn_norm", (hidden,)
        if experts:
            yield f"blk.{layer}.ffn_gate_inp", (NUM_EXPERTS, hidden)
            yield f"blk.{layer}.ffn_gate_exps", (NUM_EXPERTS, INNER, hidden)
            yield f"blk.{layer}.ffn_up_exps", (NUM_EXPERTS, INNER, hidden)
            yield f"blk.{layer}.ffn_down_exps", (NUM_EXPERTS, hidden, INNER)
        else:
            yield f"blk.{layer}.ffn_gate", (inner, hidden)
            yield f"blk.{layer}.ffn_up", (inner, hidden)
            yield f"blk.{layer}.ffn_down", (hidden, inner)
    yield "output_norm", (hidden,)
    yield "output", (CONFIG["vocab_size"], hidden)


def _hf_name(name: str) -> str:
    if name in OUTER:
        return f"{OUTER[name]}.weight"
    _, layer, part = name.split(".")
    return f"model.layers.{layer}.{BLOCK[part]}.weight"


def _random(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype).normal_(std=0.02, generator=generator)
