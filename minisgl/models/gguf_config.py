"""The config.json that a GGUF file would have, from its metadata.

Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md; defaults as llama.cpp takes them.
"""

from __future__ import annotations

import math
from typing import Any

from minisgl.models.gguf_names import LONGROPE
from minisgl.models.registry import MODELS, model_type_of
from minisgl.models.values import MAX_COUNT, MAX_LAYERS
from minisgl.models.windows import FULL, LOCAL
from minisgl.utils.gguf_file import GGUFFile

_ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen2moe": "Qwen2MoeForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3moe": "Qwen3MoeForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "olmo2": "Olmo2ForCausalLM",
    "granite": "GraniteForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3": "Gemma3ForCausalLM",
    "gpt-oss": "GptOssForCausalLM",
}
# Of rope.scaling., and what Hugging Face calls them.
_SCALING = {
    "yarn_beta_fast": "beta_fast",
    "yarn_beta_slow": "beta_slow",
    "original_context_length": "original_max_position_embeddings",
}
# Of how many layers the last one has no window, where a file does not say it.
_WINDOW_PATTERNS = {"gemma2": 2, "gemma3": 6, "olmo2": 4}
_GEMMA_27B = {"gemma2": 46, "gemma3": 62}  # layers of the largest one
_GEMMA = {
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}
# Whose layers with a window turn in their own way, and the base there if a file does not say it; None: that of others.
_LOCAL_ROPE = {"Gemma3ForCausalLM": 10000.0, "Olmo3ForCausalLM": None}
# Keys that llama.cpp heeds and nobody here does, with the one value that says nothing.
_UNHEEDED = {"attention.causal": True, "rope.scaling.yarn_log_multiplier": 0.0}
_GRANITE = {
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "logit_scale": "logits_scaling",
}
_TOKENS = {"bos_token_id": "tokenizer.ggml.bos_token_id", "eos_token_id": "tokenizer.ggml.eos_token_id"}


def hf_config(file: GGUFFile) -> dict[str, Any]:
    """As transformers 5 writes it (`rope_parameters`). Raises ValueError naming the file and what is unknown in it."""
    meta = _Metadata(file)
    for key, nothing in _UNHEEDED.items():
        if (value := meta.get(key, nothing)) != nothing:
            raise meta.error(key, f"is {value!r}, which is not supported")
    config = {
        "architectures": [meta.hf_class],
        "model_type": model_type_of(meta.hf_class),
        "hidden_act": "silu",
        "hidden_size": meta.count("embedding_length"),
        "num_hidden_layers": meta.count("block_count"),
        "intermediate_size": meta.count("feed_forward_length"),
        "max_position_embeddings": meta.count("context_length"),
        "rms_norm_eps": meta.number("attention.layer_norm_rms_epsilon"),
        "vocab_size": _vocab_size(file),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        **_heads(meta),
        **_biases(meta),
        **_experts(meta),
        **_gemma(meta),
        **_granite(meta),
    }
    if window := meta.get("attention.sliding_window"):
        config["sliding_window"] = window
    config["rope_parameters"] = rope = _rope(meta, config["head_dim"])
    if meta.hf_class in _LOCAL_ROPE:
        config["rope_parameters"] = {FULL: rope, LOCAL: _local_rope(meta, rope)}
    if original := rope.get("original_max_position_embeddings"):
        config["original_max_position_embeddings"] = original
    if meta.hf_class == "Olmo3ForCausalLM":
        config["layer_types"] = _layer_types(meta, config["num_hidden_layers"])
    return config | {name: file.metadata[key] for name, key in _TOKENS.items() if key in file.metadata}


class _Metadata:
    """Metadata of one architecture: `number("block_count")` is the value of "llama.block_count"."""

    def __init__(self, file: GGUFFile) -> None:
        self.file = file
        self.architecture = str(file.metadata.get("general.architecture"))
        if self.architecture not in _ARCHITECTURES:
            known = ", ".join(_ARCHITECTURES)
            raise ValueError(f"{file.path}: architecture {self.architecture!r} is not supported, only {known}")

    @property
    def hf_class(self) -> str:
        """A Llama with experts is what Hugging Face calls Mixtral, an OLMo 2 with windows OLMo 3."""
        if self.architecture == "llama" and self.get("expert_count"):
            return "MixtralForCausalLM"
        if self.architecture == "olmo2" and self.get("attention.sliding_window"):
            return "Olmo3ForCausalLM"
        return _ARCHITECTURES[self.architecture]

    def get(self, key: str, default: Any = None) -> Any:
        return self.file.metadata.get(f"{self.architecture}.{key}", default)

    def number(self, key: str, default: float | None = None) -> Any:
        """One number. A list gives a value for each layer, and is one number if they are all the same."""
        value = self.get(key, default)
        if isinstance(value, list) and len(set(value)) == 1:
            value = value[0]
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self.error(key, f"is {value!r}, not a number")
        return value

    def count(self, key: str, default: int | None = None) -> int:
        """A number of things, at least one."""
        value = self.number(key, default)
        most = MAX_LAYERS if key == "block_count" else MAX_COUNT
        if not isinstance(value, int) or not 1 <= value <= most:
            raise self.error(key, f"is {value!r}, not an integer above 0 and up to {most}")
        return value

    def error(self, key: str, problem: str) -> ValueError:
        return ValueError(f"{self.file.path}: {self.architecture}.{key} {problem}")


def _vocab_size(file: GGUFFile) -> int:
    """Rows of the embedding: the metadata need not give a size, and the vocabulary may be shorter."""
    if "token_embd.weight" not in file.tensors:
        raise ValueError(f"{file.path} has no tensor 'token_embd.weight'")
    return file.tensors["token_embd.weight"].shape[0]


def _heads(meta: _Metadata) -> dict[str, int]:
    num_heads = meta.count("attention.head_count")
    head_dim = meta.count("attention.key_length", meta.count("embedding_length") // num_heads)
    if meta.count("attention.value_length", head_dim) != head_dim:
        raise meta.error("attention.value_length", f"differs from the length of keys, {head_dim}")
    return {
        "num_attention_heads": num_heads,
        "num_key_value_heads": meta.count("attention.head_count_kv", num_heads),
        "head_dim": head_dim,
    }


def _biases(meta: _Metadata) -> dict[str, bool]:
    """Qwen2 always has biases of q, k and v, and Hugging Face has no field for them."""
    if meta.architecture == "qwen2":
        return {}
    tensors = meta.file.tensors
    return {"attention_bias": "blk.0.attn_q.bias" in tensors, "mlp_bias": "blk.0.ffn_up.bias" in tensors}


def _experts(meta: _Metadata) -> dict[str, Any]:
    """Which layers have none is seen from the tensors; llama.cpp knows by the architecture whether weights sum to 1."""
    if not meta.get("expert_count"):
        return {}
    layers = range(meta.count("block_count"))
    return {
        "num_local_experts": meta.count("expert_count"),
        "num_experts_per_tok": meta.count("expert_used_count"),
        "moe_intermediate_size": meta.get("expert_feed_forward_length"),
        "shared_expert_intermediate_size": meta.get("expert_shared_feed_forward_length"),
        "norm_topk_prob": meta.architecture != "qwen2moe",
        "mlp_only_layers": [i for i in layers if f"blk.{i}.ffn_gate_inp.weight" not in meta.file.tensors],
    }


def _gemma(meta: _Metadata) -> dict[str, Any]:
    """No key says by what the largest models divide scores: Google's code has it, and llama.cpp knows them by size."""
    if meta.architecture not in _GEMMA_27B:
        return {}
    hidden, heads, num_layers = (meta.count(key) for key in ("embedding_length", "attention.head_count", "block_count"))
    is_27b = num_layers == _GEMMA_27B[meta.architecture]
    scalar = hidden // heads if is_27b else meta.count("attention.key_length", hidden // heads)
    given = {name: value for key, name in _GEMMA.items() if (value := meta.get(key)) is not None}
    return {"query_pre_attn_scalar": scalar, "layer_types": _layer_types(meta, num_layers), **given}


def _granite(meta: _Metadata) -> dict[str, float]:
    """A scale that a file leaves out, or has as 0, is 1, but that of scores is the usual one."""
    if meta.architecture != "granite":
        return {}
    scale = meta.number("attention.scale", 0) or _heads(meta)["head_dim"] ** -0.5
    given = {name: value for key, name in _GRANITE.items() if (value := meta.number(key, 0))}
    return {"attention_multiplier": scale, **given}


def _layer_types(meta: _Metadata, num_layers: int) -> list[str]:
    pattern = meta.get("attention.sliding_window_pattern", _WINDOW_PATTERNS[meta.architecture])
    if meta.architecture == "gemma3" and not meta.get("attention.sliding_window"):
        return [FULL] * num_layers
    if isinstance(pattern, list):
        return [LOCAL if has_window else FULL for has_window in pattern]
    if not isinstance(pattern, int):
        raise meta.error("attention.sliding_window_pattern", f"is {pattern!r}, not an integer or a list")
    return [LOCAL if pattern == 0 or i % pattern < pattern - 1 else FULL for i in range(num_layers)]


def _rope(meta: _Metadata, head_dim: int) -> dict[str, Any]:
    rope = {"rope_theta": meta.number("rope.freq_base", 10000.0), "rope_type": "default", **_part(meta, head_dim)}
    kind = meta.get("rope.scaling.type", "linear")
    factor = meta.number("rope.scaling.factor", meta.number("rope.scale_linear", 1.0)) or 1.0
    if factor < 0:
        raise meta.error("rope.scaling.factor", f"is {factor}, below 0")
    if LONGROPE.keys() & meta.file.tensors.keys():
        return rope | _longrope(meta)
    if kind == "none" or (kind == "linear" and factor == 1):
        return rope
    return rope | {"rope_type": kind, "factor": factor} | (_yarn(meta, factor) if kind == "yarn" else {})


def _local_rope(meta: _Metadata, rope: dict[str, Any]) -> dict[str, Any]:
    """Of layers with a window, which nothing stretches."""
    base = meta.number("rope.freq_base_swa", _LOCAL_ROPE[meta.hf_class] or rope["rope_theta"])
    return {"rope_type": "default", "rope_theta": base}


def _part(meta: _Metadata, head_dim: int) -> dict[str, float]:
    turning = meta.count("rope.dimension_count", head_dim)
    if turning == head_dim:
        return {}
    if not MODELS[meta.hf_class]().turns_in_part:
        raise meta.error("rope.dimension_count", f"rotates a part of head_dim={head_dim}, which is not supported")
    return {"partial_rotary_factor": math.nextafter(turning / head_dim, 1)}  # so that no rounding takes an element


def _yarn(meta: _Metadata, factor: float) -> dict[str, float]:
    """llama.cpp multiplies the attention factor of the paper by the file's.

    GPT-OSS blends between fractions of pairs. Files do not say it, and llama.cpp takes whole ones.
    """
    attention = meta.number("rope.scaling.attn_factor", 1.0) * (1 + 0.1 * math.log(factor))
    fractions = {"truncate": False} if meta.architecture == "gpt-oss" else {}
    return {"attention_factor": attention, **fractions, **_scaling(meta)}


def _longrope(meta: _Metadata) -> dict[str, Any]:
    """The factors are tensors of the file."""
    if missing := LONGROPE.keys() - meta.file.tensors.keys():
        raise ValueError(f"{meta.file.path} has no tensor {missing.pop()!r}")
    factors = {key: meta.file.read(name).tolist() for name, key in LONGROPE.items()}
    attention = meta.number("rope.scaling.attn_factor", 1.0)
    return {"rope_type": "longrope", "attention_factor": attention, **factors, **_scaling(meta)}


def _scaling(meta: _Metadata) -> dict[str, Any]:
    given = {name: meta.get(f"rope.scaling.{key}") for key, name in _SCALING.items()}
    return {name: value for name, value in given.items() if value is not None}
