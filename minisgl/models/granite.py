"""Granite: as Llama, but scores, token vectors and what attention and MLP add are scaled, and logits are divided.

Shape letters: T tokens in the batch, H hidden size, Hq and Hkv heads of this rank, D head dim.
`forward` is called by its name: nn.Module's own call looks for hooks, of which there are none, for some us a time.
Source: module names and multipliers as in transformers' `modeling_granite.py`.
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
from minisgl.models.values import positive

SCALES = ("embedding_multiplier", "residual_multiplier", "logits_scaling")  # as in ModelConfig


class GraniteAttention(nn.Module):
    """q, k, v in one matmul."""

    def __init__(self, config: ModelConfig, layer_id: int, place: Placement) -> None:
        super().__init__()
        hidden, head_dim, bias = config.hidden_size, config.head_dim, config.attention_bias
        q_size, kv_size = config.num_qo_heads * head_dim, config.num_kv_heads * head_dim
        num_qo_heads = place.tp.shard("num_qo_heads", config.num_qo_heads)
        num_kv_heads = place.tp.shard("num_kv_heads", config.num_kv_heads)
        parts = {"q_proj": q_size, "k_proj": kv_size, "v_proj": kv_size}
        self.qkv_proj = ColumnParallelLinear(hidden, parts, bias, place)
        self.attn = AttentionLayer(layer_id, num_qo_heads, num_kv_heads, head_dim)
        self.o_proj = RowParallelLinear(q_size, hidden, bias, place)

    def forward(
        self, x: torch.Tensor, residual: torch.Tensor | None, norm: RMSNorm, rotation: Rotation, ctx: Context
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(attention of norm(residual + x), residual + x); both [T, H], given up."""
        qkv, residual = self.qkv_proj.after_norm(x, residual, norm)
        return self.o_proj.forward(self.attn.forward(qkv, rotation, ctx)), residual


class GraniteMLP(nn.Module):
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


class GraniteDecoderLayer(nn.Module):
    """Attention, then MLP, what each gives scaled. The residual stream travels beside x, which is still to be added."""

    def __init__(self, config: ModelConfig, layer_id: int, place: Placement) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps, place)
        self.self_attn = GraniteAttention(config, layer_id, place)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps, place)
        self.mlp = GraniteMLP(config, place)
        self.multiplier = config.residual_multiplier

    def forward(
        self, x: torch.Tensor, residual: torch.Tensor | None, rotation: Rotation, ctx: Context
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """x, residual: [T, H], given up; no residual in the first layer."""
        x, residual = self.self_attn.forward(x, residual, self.input_layernorm, rotation, ctx)
        x, residual = self.mlp.forward(x.mul_(self.multiplier), residual, self.post_attention_layernorm)
        return x.mul_(self.multiplier), residual


class GraniteModel(nn.Module):
    """Embedding, scaled, layers, final norm."""

    def __init__(self, config: ModelConfig, place: Placement) -> None:
        super().__init__()
        self.embed_tokens = VocabParallelEmbedding(config.vocab_size, config.hidden_size, place)
        self.multiplier = config.embedding_multiplier
        self.layers = nn.ModuleList(GraniteDecoderLayer(config, i, place) for i in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps, place)

    def forward(self, input_ids: torch.Tensor, rotation: Rotation, ctx: Context) -> torch.Tensor:
        x, residual = self.embed_tokens(input_ids).mul_(self.multiplier), None
        for layer in self.layers:
            x, residual = layer.forward(x, residual, rotation, ctx)
        return self.norm.add_and_norm(x, residual)[0]


class GraniteForCausalLM(BaseCausalLM):
    """The whole model."""

    windowed = False
    config_defaults: ClassVar[Mapping[str, Any]] = dict.fromkeys(("attention_multiplier", *SCALES), 1.0)

    @classmethod
    def config_fields(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        scales = {name: positive(config, name) for name in SCALES}
        return {"attn_scale": positive(config, "attention_multiplier"), **scales}

    def __init__(self, config: ModelConfig, place: Placement) -> None:
        super().__init__(config, place)
        self.rotary_emb = self.make_rotary(config, place)
        self.model = GraniteModel(config, place)
        tied_to = self.model.embed_tokens if config.tie_word_embeddings else None
        self.lm_head = LMHead(config.vocab_size, config.hidden_size, place, tied_to)

    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor, ctx: Context) -> torch.Tensor:
        hidden: torch.Tensor = self.model(input_ids, self.rotary_emb(positions), ctx)
        return hidden

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return super().compute_logits(hidden).div_(self.config.logits_scaling)
