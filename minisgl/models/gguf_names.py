"""What GGUF calls the tensors of a model, and what Hugging Face calls them."""

from __future__ import annotations

import re

_OUTER = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
    "rope_freqs.weight": "rope_freqs.weight",
}
_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.gate_proj",
    "ffn_up_exps": "mlp.experts.up_proj",
    "ffn_down_exps": "mlp.experts.down_proj",
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
}
_GEMMA = {"ffn_norm": "pre_feedforward_layernorm"}
_GPT_OSS = {"attn_sinks": "self_attn.sinks", "ffn_gate_inp": "mlp.router"}
_ONLY_IN = {"phi3": {"ffn_up": "mlp.gate_up_proj"}, "gemma2": _GEMMA, "gemma3": _GEMMA, "gpt-oss": _GPT_OSS}
# Which longrope divides frequencies by; Hugging Face has them in config.json.
LONGROPE = {"rope_factors_short.weight": "short_factor", "rope_factors_long.weight": "long_factor"}
_EXPERT_NAME = re.compile(r"blk\.(\d+)\.ffn_(gate|up|down)\.(\d+)\.weight")  # before April 2024, a matrix each
_BLOCK_NAME = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")


def hf_name(name: str, architecture: str) -> str | None:
    """Hugging Face's name of the tensor `name`, None if it belongs to no model that we know.

    architecture: GGUF's name of it.
    "rope_freqs.weight" keeps its name: it divides the frequencies of the rotary embedding, and Hugging Face has
    no such tensor.
    """
    if expert := _EXPERT_NAME.fullmatch(name):
        return f"model.layers.{expert[1]}.mlp.experts.{expert[3]}.{expert[2]}_proj.weight"
    match = _BLOCK_NAME.fullmatch(name)
    block = _BLOCK | _ONLY_IN.get(architecture, {})
    if match is None or match[2] not in block:
        return _OUTER.get(name)
    return f"model.layers.{match[1]}.{block[match[2]]}.{match[3]}"
