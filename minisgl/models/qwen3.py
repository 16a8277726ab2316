"""Qwen3, dense: as Llama, but every head's q and k are normalised before they turn by position.

Shape letters: T tokens in the batch, H hidden size, Hq and Hkv heads of this rank, D head dim.
`forward` is called by its name: nn.Module's own call looks for hooks, of which there are none, for some us a time.
Source: arXiv:2505.09388; module names as in transformers' `modeling_qwen3.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import nn

from minisgl.core import Context
from minisgl.layers import (
    AttentionLayer,
    ColumnParallelLinear,
    LMHead,
    Placement,
    RMSNorm,
    Rotation,
    RowParallelLinear,
    VocabParallelEmbedding,
)
from minisgl.models.base import BaseCausalLM
from minisgl.models.config import ModelConfig
from minisgl.models.windows import in_later_layers


class Qwen3Attention(nn.Module):
    """q, k, v in one matmul; the norms of q and k have one weight vector [D] each for all heads, on every rank."""

    def __init__(self, config: ModelConfig, layer_id: int, place: Placement) -> None:
        super().__init__()
        hidden, head_dim, bias = config.hidden_size, config.head_dim, config.attention_bias
        q_size, kv_size = config.num_qo_heads * head_dim, config.num_kv_heads * head_dim
        num_qo_heads = place.tp.shard("num_qo_heads", config.num_qo_heads)
        num_kv_heads = place.tp.shard("num_kv_heads", config.num_kv_heads)
        parts = {"q_proj": q_size, "k_proj": kv_size, "v_proj": kv_size}
        self.qkv_proj = ColumnParallelLinear(hidden, parts, bias, place)
        self.q_norm = RMSNorm(head_dim, config.rms_norm_eps, place)
        self.k_norm = RMSNorm(head_dim, config.rms_norm_eps, place)
        self.attn = AttentionLayer(layer_id, num_qo_heads, num_kv_heads, head_dim, self.q_norm, self.k_norm)
        self.o_proj = RowParallelLinear(q_size, hidden, bias, place)

    def forward(
        self, x: torch.Tensor, residual: torch.Tensor | None, norm: RMSNorm, rotation: Rotation, ctx: Context
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(attention of norm(residual + x), residual + x); both [T, H], given up."""
        qkv, residual = self.qkv_proj.after_norm(x, residual, norm)
        return self.o_proj.forward(self.attn.forward(qkv, rotation, ctx)), residual


class Qwen3MLP(nn.Module):
    """down(silu(gate(x)) * up(x)); gate and up are one matmul."""

    def __init__(self, config: ModelConfig, place: Placement) -> None:
        super().__init__()
        hidden, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        parts = {"gate_proj": inner, "up_proj": inner}
        self.gate_up_proj = ColumnParallelLinear(hidden, parts, bias, place, gate="silu")
        self.down_proj = RowParallelLinear(inner, hidden, bias, place)

    def forward(self, x: torch.Tensor, residual: torch.Tensor, norm: RMSNorm) -> tuple[torch.Tensor, torch.Tensor]:
        """(the MLP of norm(residual + x), residual + x); both [T, H], given up."""
        gate, residual = self.gate_up_proj.after_norm(x, residual, norm)
        return self.down_proj.forward(gate), residual


class Qwen3DecoderLayer(nn.Module):
    """Attention, then MLP. The residual stream travels beside x, which is what is still to be added to it."""

    def __init__(self, config: ModelConfig, layer_id: int, place: Placement) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps, place)
        self.self_attn = Qwen3Attention(config, layer_id, place)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps, place)
        self.mlp = Qwen3MLP(config, place)

    def forward(
        self, x: torch.Tensor, residual: torch.Tensor | None, rotation: Rotation, ctx: Context
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """x, residual: [T, H], given up; no residual in the first layer."""
        x, residual = self.self_attn.forward(x, residual, self.input_layernorm, rotation, ctx)
        return self.mlp.forward(x, residual, self.post_attention_layernorm)


class Qwen3Model(nn.Module):
    """Embedding, layers, final norm."""

    def __init__(self, config: ModelConfig, place: Placement) -> None:
        super().__init__()
        self.embed_tokens = VocabParallelEmbedding(config.vocab_size, config.hidden_size, place)
        self.layers = nn.ModuleList(Qwen3DecoderLayer(config, i, place) for i in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps, place)

    def forward(self, input_ids: torch.Tensor, rotation: Rotation, ctx: Context) -> torch.Tensor:
        x, residual = self.embed_tokens(input_ids), None
        for layer in self.layers:
            x, residual = layer(x, residual, rotation, ctx)
        return self.norm.add_and_norm(x, residual)[0]


class Qwen3ForCausalLM(BaseCausalLM):
    """The whole model."""

    config_defaults: ClassVar[Mapping[str, Any]] = {
        "head_dim": 128,
        "num_key_value_heads": 32,
        "use_sliding_window": False,
        "sliding_window": 4096,
        "max_window_layers": 28,
    }

    @classmethod
    def plain_config(cls, config: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**config, "layer_types": in_later_layers(config)}

    def __init__(self, config: ModelConfig, place: Placement) -> None:
        super().__init__(config, place)
        self.rotary_emb = self.make_rotary(config, place)
        self.model = Qwen3Model(config, place)
        tied_to = self.model.embed_tokens if config.tie_word_embeddings else None
        self.lm_head = LMHead(config.vocab_size, config.hidden_size, place, tied_to)

    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor, ctx: Context) -> torch.Tensor:
        hidden: torch.Tensor = self.model(input_ids, self.rotary_emb(positions), ctx)
        return hidden
