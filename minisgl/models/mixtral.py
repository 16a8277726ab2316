"""Mixtral: as Llama, but every layer has several MLPs, of which every token uses two.

Shape letters: T tokens in the batch, H hidden size, Hq and Hkv heads of this rank, D head dim.
`forward` is called by its name: nn.Module's own call looks for hooks, of which there are none, for some us a time.
Source: arXiv:2401.04088; names of modules as in the published checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import nn

from minisgl.core import Context
from minisgl.distributed import all_reduce
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
from minisgl.models.expert_config import ExpertConfig
from minisgl.models.values import count
from minisgl.models.windows import in_every_layer
from minisgl.moe import ExpertNames, Experts, Router, split_experts
from minisgl.utils.grouped_tensor import GroupedTensor

NAMES = ExpertNames("w1", "w3", "w2")


class MixtralAttention(nn.Module):
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


class MixtralSparseMoeBlock(nn.Module):
    """The weighted sum of the MLPs that the router chooses for each token."""

    def __init__(self, config: ModelConfig, place: Placement) -> None:
        super().__init__()
        assert config.experts is not None
        self.tp, experts = place.tp, config.experts
        num_experts, num_chosen = experts.num_experts, experts.num_chosen
        self.gate = Router(config.hidden_size, num_experts, num_chosen, experts.normalised, place)
        self.experts = Experts(num_experts, config.hidden_size, experts.inner_size, place, NAMES)

    def forward(self, x: torch.Tensor, residual: torch.Tensor, norm: RMSNorm) -> tuple[torch.Tensor, torch.Tensor]:
        """(the experts' sum of norm(residual + x), residual + x); both [T, H], given up."""
        x, residual = norm.add_and_norm(x, residual)
        return all_reduce(self.experts.partial(x, self.gate.choose(x)), self.tp), residual


class MixtralDecoderLayer(nn.Module):
    """Attention, then experts. The residual stream travels beside x, which is what is still to be added to it."""

    def __init__(self, config: ModelConfig, layer_id: int, place: Placement) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps, place)
        self.self_attn = MixtralAttention(config, layer_id, place)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps, place)
        self.block_sparse_moe = MixtralSparseMoeBlock(config, place)

    def forward(
        self, x: torch.Tensor, residual: torch.Tensor | None, rotation: Rotation, ctx: Context
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """x, residual: [T, H], given up; no residual in the first layer."""
        x, residual = self.self_attn.forward(x, residual, self.input_layernorm, rotation, ctx)
        return self.block_sparse_moe.forward(x, residual, self.post_attention_layernorm)


class MixtralModel(nn.Module):
    """Embedding, layers, final norm."""

    def __init__(self, config: ModelConfig, place: Placement) -> None:
        super().__init__()
        self.embed_tokens = VocabParallelEmbedding(config.vocab_size, config.hidden_size, place)
        self.layers = nn.ModuleList(MixtralDecoderLayer(config, i, place) for i in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps, place)

    def forward(self, input_ids: torch.Tensor, rotation: Rotation, ctx: Context) -> torch.Tensor:
        x, residual = self.embed_tokens(input_ids), None
        for layer in self.layers:
            x, residual = layer(x, residual, rotation, ctx)
        return self.norm.add_and_norm(x, residual)[0]


class MixtralForCausalLM(BaseCausalLM):
    """The whole model."""

    config_defaults: ClassVar[Mapping[str, Any]] = {
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e6,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    }

    @classmethod
    def plain_config(cls, config: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**config, "layer_types": in_every_layer(config)}

    @classmethod
    def config_fields(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        experts = ExpertConfig(
            num_experts=count(config, "num_local_experts"),
            num_chosen=count(config, "num_experts_per_tok"),
            inner_size=count(config, "intermediate_size"),
            normalised=True,
        )
        return {"experts": experts}

    def __init__(self, config: ModelConfig, place: Placement) -> None:
        super().__init__(config, place)
        self.rotary_emb = self.make_rotary(config, place)
        self.model = MixtralModel(config, place)
        tied_to = self.model.embed_tokens if config.tie_word_embeddings else None
        self.lm_head = LMHead(config.vocab_size, config.hidden_size, place, tied_to)

    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor, ctx: Context) -> torch.Tensor:
        hidden: torch.Tensor = self.model(input_ids, self.rotary_emb(positions), ctx)
        return hidden

    def load_weight(self, name: str, tensor: torch.Tensor | GroupedTensor) -> None:
        """As elsewhere; transformers 5 has another name for the block in memory, and may save it so."""
        for own_name, matrix in split_experts(name.replace(".mlp.", ".block_sparse_moe."), tensor, NAMES):
            super().load_weight(own_name, matrix)
