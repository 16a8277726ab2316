"""Gemma 2: norms before and after attention and MLP, soft-capped scores and logits, a window in every second layer.

Shape letters: T tokens in the batch, H hidden size, Hq and Hkv heads of this rank, D head dim.
`forward` is called by its name: nn.Module's own call looks for hooks, of which there are none, for some us a time.
Source: arXiv:2408.00118; module names as in transformers' `modeling_gemma2.py`.
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
from minisgl.models.values import count, positive
from minisgl.models.windows import FULL, LOCAL


def make_norm(size: int, config: ModelConfig, place: Placement) -> RMSNorm:
    """A checkpoint of Gemma has the difference of a norm's weight from 1."""
    return RMSNorm(size, config.rms_norm_eps, place, offset=1.0)


class Gemma2Attention(nn.Module):
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


class Gemma2MLP(nn.Module):
    """down(gelu(gate(x)) * up(x)); gate and up are one matmul."""

    def __init__(self, config: ModelConfig, place: Placement) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.intermediate_size
        parts = {"gate_proj": inner, "up_proj": inner}
        self.gate_up_proj = ColumnParallelLinear(hidden, parts, False, place, gate=config.hidden_act)
        self.down_proj = RowParallelLinear(inner, hidden, False, place)

    def forward(self, x: torch.Tensor, residual: torch.Tensor, norm: RMSNorm) -> tuple[torch.Tensor, torch.Tensor]:
        """(the MLP of norm(residual + x), residual + x); both [T, H], given up."""
        gate, residual = self.gate_up_proj.after_norm(x, residual, norm)
        return self.down_proj.forward(gate), residual


class Gemma2DecoderLayer(nn.Module):
    """Attention, then MLP; what each gives is normalised, too. The residual stream travels beside x."""

    def __init__(self, config: ModelConfig, layer_id: int, place: Placement) -> None:
        super().__init__()
        self.input_layernorm = make_norm(config.hidden_size, config, place)
        self.self_attn = Gemma2Attention(config, layer_id, place)
        self.post_attention_layernorm = make_norm(config.hidden_size, config, place)
        self.pre_feedforward_layernorm = make_norm(config.hidden_size, config, place)
        self.mlp = Gemma2MLP(config, place)
        self.post_feedforward_layernorm = make_norm(config.hidden_size, config, place)

    def forward(
        self, x: torch.Tensor, residual: torch.Tensor | None, rotation: Rotation, ctx: Context
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """x, residual: [T, H], given up; no residual in the first layer."""
        x, residual = self.self_attn.forward(x, residual, self.input_layernorm, rotation, ctx)
        x = self.post_attention_layernorm.forward(x)
        x, residual = self.mlp.forward(x, residual, self.pre_feedforward_layernorm)
        return self.post_feedforward_layernorm.forward(x), residual


class Gemma2Model(nn.Module):
    """Embedding, whose scale is rounded as weights are, layers, final norm."""

    def __init__(self, config: ModelConfig, place: Placement) -> None:
        super().__init__()
        self.embed_tokens = VocabParallelEmbedding(config.vocab_size, config.hidden_size, place)
        self.embed_scale = torch.tensor(config.hidden_size**0.5, dtype=place.dtype).item()
        self.layers = nn.ModuleList(Gemma2DecoderLayer(config, i, place) for i in range(config.num_layers))
        self.norm = make_norm(config.hidden_size, config, place)

    def forward(self, input_ids: torch.Tensor, rotation: Rotation, ctx: Context) -> torch.Tensor:
        x, residual = self.embed_tokens(input_ids).mul_(self.embed_scale), None
        for layer in self.layers:
            x, residual = layer.forward(x, residual, rotation, ctx)
        return self.norm.add_and_norm(x, residual)[0]


class Gemma2ForCausalLM(BaseCausalLM):
    """The whole model."""

    activations: ClassVar[tuple[str, ...]] = ("gelu_pytorch_tanh", "silu")
    config_defaults: ClassVar[Mapping[str, Any]] = {
        "head_dim": 256,
        "num_key_value_heads": 4,
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 256,
        "sliding_window": 4096,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
        "tie_word_embeddings": True,
    }

    @classmethod
    def plain_config(cls, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """The activation has a key of its own beside hidden_act; layers that see everything are the odd ones."""
        kinds = [FULL if i % 2 else LOCAL for i in range(count(config, "num_hidden_layers"))]
        plain = {"hidden_act": config["hidden_activation"], "layer_types": config.get("layer_types") or kinds}
        return {**config, **plain}

    @classmethod
    def config_fields(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        caps = {"attn_softcap": "attn_logit_softcapping", "logit_softcap": "final_logit_softcapping"}
        given = {field: positive(config, key) for field, key in caps.items() if key in config}
        return {"attn_scale": positive(config, "query_pre_attn_scalar") ** -0.5, **given}

    def __init__(self, config: ModelConfig, place: Placement) -> None:
        super().__init__(config, place)
        self.rotary_emb = self.make_rotary(config, place)
        self.model = Gemma2Model(config, place)
        tied_to = self.model.embed_tokens if config.tie_word_embeddings else None
        self.lm_head = LMHead(config.vocab_size, config.hidden_size, place, tied_to)

    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor, ctx: Context) -> torch.Tensor:
        hidden: torch.Tensor = self.model(input_ids, self.rotary_emb(positions), ctx)
        return hidden
