"""OLMo 3: as OLMo 2, but three of four layers see a window, and only the others turn as far as yarn stretches.

Shape letters: T tokens in the batch, H hidden size, Hq and Hkv heads of this rank, D head dim.
`forward` is called by its name: nn.Module's own call looks for hooks, of which there are none, for some us a time.
Source: arXiv:2512.13961; module names as in transformers' `modeling_olmo3.py`.
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
    ShardedRMSNorm,
    VocabParallelEmbedding,
)
from minisgl.models.base import BaseCausalLM
from minisgl.models.config import ModelConfig
from minisgl.models.local_rope import by_kind_of_layer, local_rope
from minisgl.models.values import count, positive
from minisgl.models.windows import FULL, LOCAL


class Olmo3Attention(nn.Module):
    """q, k, v in one matmul; the norms of q and k take in the heads of all ranks."""

    def __init__(self, config: ModelConfig, layer_id: int, place: Placement) -> None:
        super().__init__()
        hidden, head_dim, bias = config.hidden_size, config.head_dim, config.attention_bias
        q_size, kv_size = config.num_qo_heads * head_dim, config.num_kv_heads * head_dim
        num_qo_heads = place.tp.shard("num_qo_heads", config.num_qo_heads)
        num_kv_heads = place.tp.shard("num_kv_heads", config.num_kv_heads)
        parts = {"q_proj": q_size, "k_proj": kv_size, "v_proj": kv_size}
        self.qkv_proj = ColumnParallelLinear(hidden, parts, bias, place)
        self.q_norm = ShardedRMSNorm(q_size, config.rms_norm_eps, place)
        self.k_norm = ShardedRMSNorm(kv_size, config.rms_norm_eps, place)
        self.sizes = [num_heads * head_dim for num_heads in (num_qo_heads, num_kv_heads, num_kv_heads)]
        self.attn = AttentionLayer(layer_id, num_qo_heads, num_kv_heads, head_dim)
        self.o_proj = RowParallelLinear(q_size, hidden, bias, place)

    def forward(self, x: torch.Tensor, rotation: Rotation, ctx: Context) -> torch.Tensor:
        """[T, H] -> [T, H]"""
        qkv = self.qkv_proj.forward(x)
        q, k, _ = qkv.split_with_sizes(self.sizes, dim=1)
        q.copy_(self.q_norm.forward(q))
        k.copy_(self.k_norm.forward(k))
        return self.o_proj.forward(self.attn.forward(qkv, rotation, ctx))


class Olmo3MLP(nn.Module):
    """down(silu(gate(x)) * up(x)); gate and up are one matmul."""

    def __init__(self, config: ModelConfig, place: Placement) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.intermediate_size
        parts = {"gate_proj": inner, "up_proj": inner}
        self.gate_up_proj = ColumnParallelLinear(hidden, parts, False, place, gate="silu")
        self.down_proj = RowParallelLinear(inner, hidden, False, place)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[T, H] -> [T, H]"""
        return self.down_proj.forward(self.gate_up_proj.forward(x))


class Olmo3DecoderLayer(nn.Module):
    """Attention, then MLP; what each gives is normalised before it is added."""

    def __init__(self, config: ModelConfig, layer_id: int, place: Placement) -> None:
        super().__init__()
        self.self_attn = Olmo3Attention(config, layer_id, place)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps, place)
        self.mlp = Olmo3MLP(config, place)
        self.post_feedforward_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps, place)

    def forward(self, x: torch.Tensor, rotation: Rotation, ctx: Context) -> torch.Tensor:
        """x: [T, H], given up."""
        x.add_(self.post_attention_layernorm.forward(self.self_attn.forward(x, rotation, ctx)))
        return x.add_(self.post_feedforward_layernorm.forward(self.mlp.forward(x)))


class Olmo3Model(nn.Module):
    """Embedding, layers, final norm."""

    def __init__(self, config: ModelConfig, place: Placement) -> None:
        super().__init__()
        self.embed_tokens = VocabParallelEmbedding(config.vocab_size, config.hidden_size, place)
        self.layers = nn.ModuleList(Olmo3DecoderLayer(config, i, place) for i in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps, place)
        self.local_layers = config.local_layers

    def forward(self, input_ids: torch.Tensor, rotation: Rotation, local: Rotation, ctx: Context) -> torch.Tensor:
        """local: the rotation of layers with a window."""
        x = self.embed_tokens(input_ids)
        for i, layer in enumerate(self.layers):
            x = layer.forward(x, local if i in self.local_layers else rotation, ctx)
        return self.norm.forward(x)


class Olmo3ForCausalLM(BaseCausalLM):
    """The whole model."""

    config_defaults: ClassVar[Mapping[str, Any]] = {"rms_norm_eps": 1e-5, "rope_theta": 5e5, "sliding_window": 4096}

    @classmethod
    def plain_config(cls, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """Every fourth layer has no window, unless a list says which."""
        kinds = [LOCAL if (i + 1) % 4 else FULL for i in range(count(config, "num_hidden_layers"))]
        return {**config, "layer_types": config.get("layer_types") or kinds, **by_kind_of_layer(config)}

    @classmethod
    def config_fields(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        """A rope_theta at the top is for all layers. (transformers 5.24 forgets it in those with a window.)"""
        return {"local_rope": local_rope(config, positive(config, "rope_theta"))}

    def __init__(self, config: ModelConfig, place: Placement) -> None:
        super().__init__(config, place)
        self.rotary_emb = self.make_rotary(config, place)
        self.local_rotary_emb = self.make_rotary(config, place, config.local_rope)
        self.model = Olmo3Model(config, place)
        tied_to = self.model.embed_tokens if config.tie_word_embeddings else None
        self.lm_head = LMHead(config.vocab_size, config.hidden_size, place, tied_to)

    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor, ctx: Context) -> torch.Tensor:
        rotation, local = self.rotary_emb(positions), self.local_rotary_emb(positions)
        hidden: torch.Tensor = self.model(input_ids, rotation, local, ctx)
        return hidden
