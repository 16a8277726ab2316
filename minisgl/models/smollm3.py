"""SmolLM3: as Llama, but in every fourth layer, or those that the config lists, q and k do not turn by position.

Shape letters: T tokens in the batch, H hidden size, Hq and Hkv heads of this rank, D head dim.
`forward` is called by its name: nn.Module's own call looks for hooks, of which there are none, for some us a time.
Source: NoPE, arXiv:2501.18795; module names as in transformers' `modeling_smollm3.py`.
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
from minisgl.models.values import count, switches
from minisgl.models.windows import in_chosen_layers


class SmolLM3Attention(nn.Module):
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


class SmolLM3MLP(nn.Module):
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


class SmolLM3DecoderLayer(nn.Module):
    """Attention, then MLP. The residual stream travels beside x, which is what is still to be added to it."""

    def __init__(self, config: ModelConfig, layer_id: int, place: Placement) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps, place)
        self.self_attn = SmolLM3Attention(config, layer_id, place)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps, place)
        self.mlp = SmolLM3MLP(config, place)

    def forward(
        self, x: torch.Tensor, residual: torch.Tensor | None, rotation: Rotation, ctx: Context
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """x, residual: [T, H], given up; no residual in the first layer."""
        x, residual = self.self_attn.forward(x, residual, self.input_layernorm, rotation, ctx)
        return self.mlp.forward(x, residual, self.post_attention_layernorm)


class SmolLM3Model(nn.Module):
    """Embedding, layers, final norm. Layers without positions get a rotation that turns nothing."""

    def __init__(self, config: ModelConfig, place: Placement) -> None:
        super().__init__()
        self.embed_tokens = VocabParallelEmbedding(config.vocab_size, config.hidden_size, place)
        self.layers = nn.ModuleList(SmolLM3DecoderLayer(config, i, place) for i in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps, place)
        self.without_rope = config.layers_without_rope

    def forward(self, input_ids: torch.Tensor, rotation: Rotation, ctx: Context) -> torch.Tensor:
        x, residual = self.embed_tokens(input_ids), None
        still = rotation.standstill() if self.without_rope else rotation
        for i, layer in enumerate(self.layers):
            x, residual = layer(x, residual, still if i in self.without_rope else rotation, ctx)
        return self.norm.add_and_norm(x, residual)[0]


def layers_without_rope(config: Mapping[str, Any]) -> frozenset[int]:
    """no_rope_layers has a 1, of all things, for every layer that turns; a 0 for one that does not."""
    num_layers = count(config, "num_hidden_layers")
    if config.get("no_rope_layers") is not None:
        turns = switches(config, "no_rope_layers", num_layers)
    else:
        interval = count(config, "no_rope_layer_interval")
        turns = [(i + 1) % interval != 0 for i in range(num_layers)]
    return frozenset(i for i in range(num_layers) if not turns[i])


class SmolLM3ForCausalLM(BaseCausalLM):
    """The whole model."""

    config_defaults: ClassVar[Mapping[str, Any]] = {
        "num_key_value_heads": 4,
        "rope_theta": 2000000.0,
        "tie_word_embeddings": True,
        "use_sliding_window": False,
        "no_rope_layer_interval": 4,
    }

    @classmethod
    def plain_config(cls, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """Only layers that do not turn may have a window."""
        still = layers_without_rope(config)
        return {**config, "layer_types": in_chosen_layers(config, lambda i: i in still)}

    @classmethod
    def config_fields(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        return {"layers_without_rope": layers_without_rope(config)}

    def __init__(self, config: ModelConfig, place: Placement) -> None:
        super().__init__(config, place)
        self.rotary_emb = self.make_rotary(config, place)
        self.model = SmolLM3Model(config, place)
        tied_to = self.model.embed_tokens if config.tie_word_embeddings else None
        self.lm_head = LMHead(config.vocab_size, config.hidden_size, place, tied_to)

    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor, ctx: Context) -> torch.Tensor:
        hidden: torch.Tensor = self.model(input_ids, self.rotary_emb(positions), ctx)
        return hidden
