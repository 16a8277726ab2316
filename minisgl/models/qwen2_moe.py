"""Qwen2-MoE: as Qwen2, but most layers have many small MLPs, of which every token uses a few, and one that all use.

Shape letters: T tokens in the batch, H hidden size, Hq and Hkv heads of this rank, D head dim.
`forward` is called by its name: nn.Module's own call looks for hooks, of which there are none, for some us a time.
Source: arXiv:2407.10671; module names as in transformers' `modeling_qwen2_moe.py`.
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
from minisgl.models.values import count, flag
from minisgl.models.windows import in_chosen_layers
from minisgl.moe import Experts, Router, WholeLinear, split_experts
from minisgl.utils.grouped_tensor import GroupedTensor, dense


class Qwen2MoeAttention(nn.Module):
    """q, k, v in one matmul, with biases."""

    def __init__(self, config: ModelConfig, layer_id: int, place: Placement) -> None:
        super().__init__()
        hidden, head_dim = config.hidden_size, config.head_dim
        q_size, kv_size = config.num_qo_heads * head_dim, config.num_kv_heads * head_dim
        num_qo_heads = place.tp.shard("num_qo_heads", config.num_qo_heads)
        num_kv_heads = place.tp.shard("num_kv_heads", config.num_kv_heads)
        parts = {"q_proj": q_size, "k_proj": kv_size, "v_proj": kv_size}
        self.qkv_proj = ColumnParallelLinear(hidden, parts, True, place)
        self.attn = AttentionLayer(layer_id, num_qo_heads, num_kv_heads, head_dim)
        self.o_proj = RowParallelLinear(q_size, hidden, False, place)

    def forward(
        self, x: torch.Tensor, residual: torch.Tensor | None, norm: RMSNorm, rotation: Rotation, ctx: Context
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(attention of norm(residual + x), residual + x); both [T, H], given up."""
        qkv, residual = self.qkv_proj.after_norm(x, residual, norm)
        return self.o_proj.forward(self.attn.forward(qkv, rotation, ctx)), residual


class Qwen2MoeMLP(nn.Module):
    """down(silu(gate(x)) * up(x)); gate and up are one matmul."""

    def __init__(self, hidden: int, inner: int, place: Placement) -> None:
        super().__init__()
        parts = {"gate_proj": inner, "up_proj": inner}
        self.gate_up_proj = ColumnParallelLinear(hidden, parts, False, place, gate="silu")
        self.down_proj = RowParallelLinear(inner, hidden, False, place)

    def forward(self, x: torch.Tensor, residual: torch.Tensor, norm: RMSNorm) -> tuple[torch.Tensor, torch.Tensor]:
        """(the MLP of norm(residual + x), residual + x); both [T, H], given up."""
        gate, residual = self.gate_up_proj.after_norm(x, residual, norm)
        return self.down_proj.forward(gate), residual

    def partial(self, x: torch.Tensor) -> torch.Tensor:
        """x: [T, H] -> [T, H], this rank's term of the sum over the ranks."""
        return self.down_proj.partial(self.gate_up_proj.forward(x))


class Qwen2MoeSparseMLP(nn.Module):
    """The weighted sum of the MLPs that the router chooses for each token, and of the shared one with its own gate."""

    def __init__(self, config: ModelConfig, experts: ExpertConfig, place: Placement) -> None:
        super().__init__()
        self.tp, hidden = place.tp, config.hidden_size
        self.gate = Router(hidden, experts.num_experts, experts.num_chosen, experts.normalised, place)
        self.experts = Experts(experts.num_experts, hidden, experts.inner_size, place)
        self.shared_expert = Qwen2MoeMLP(hidden, experts.shared_size, place)
        self.shared_expert_gate = WholeLinear(hidden, 1, place)

    def forward(self, x: torch.Tensor, residual: torch.Tensor, norm: RMSNorm) -> tuple[torch.Tensor, torch.Tensor]:
        """As `Qwen2MoeMLP.forward`."""
        x, residual = norm.add_and_norm(x, residual)
        chosen = self.experts.partial(x, self.gate.choose(x))
        share = self.shared_expert_gate.forward(x).sigmoid_()
        chosen.addcmul_(self.shared_expert.partial(x), share)
        return all_reduce(chosen, self.tp), residual


class Qwen2MoeDecoderLayer(nn.Module):
    """Attention, then one MLP or many. The residual stream travels beside x, which is still to be added to it."""

    def __init__(self, config: ModelConfig, layer_id: int, place: Placement) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps, place)
        self.self_attn = Qwen2MoeAttention(config, layer_id, place)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps, place)
        assert config.experts is not None
        if layer_id in config.experts.dense_layers:
            self.mlp: Qwen2MoeMLP | Qwen2MoeSparseMLP = Qwen2MoeMLP(config.hidden_size, config.intermediate_size, place)
        else:
            self.mlp = Qwen2MoeSparseMLP(config, config.experts, place)

    def forward(
        self, x: torch.Tensor, residual: torch.Tensor | None, rotation: Rotation, ctx: Context
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """x, residual: [T, H], given up; no residual in the first layer."""
        x, residual = self.self_attn.forward(x, residual, self.input_layernorm, rotation, ctx)
        return self.mlp.forward(x, residual, self.post_attention_layernorm)


class Qwen2MoeModel(nn.Module):
    """Embedding, layers, final norm."""

    def __init__(self, config: ModelConfig, place: Placement) -> None:
        super().__init__()
        self.embed_tokens = VocabParallelEmbedding(config.vocab_size, config.hidden_size, place)
        self.layers = nn.ModuleList(Qwen2MoeDecoderLayer(config, i, place) for i in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps, place)

    def forward(self, input_ids: torch.Tensor, rotation: Rotation, ctx: Context) -> torch.Tensor:
        x, residual = self.embed_tokens(input_ids), None
        for layer in self.layers:
            x, residual = layer(x, residual, rotation, ctx)
        return self.norm.add_and_norm(x, residual)[0]


class Qwen2MoeForCausalLM(BaseCausalLM):
    """The whole model."""

    config_defaults: ClassVar[Mapping[str, Any]] = {
        "num_key_value_heads": 16,
        "num_experts": 60,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 1408,
        "shared_expert_intermediate_size": 5632,
        "use_sliding_window": False,
        "sliding_window": 4096,
        "max_window_layers": 28,
    }

    @classmethod
    def plain_config(cls, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """Every second layer has a window, but none from number max_window_layers on."""
        end = count(config, "max_window_layers", least=0)
        return {**config, "layer_types": in_chosen_layers(config, lambda i: i % 2 == 0 and i < end)}

    @classmethod
    def config_fields(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        if not flag(config, "qkv_bias", True):
            raise ValueError("qkv_bias=False is not supported in Qwen2MoeForCausalLM")
        return {"experts": ExpertConfig.from_qwen(config, count(config, "shared_expert_intermediate_size"))}

    def __init__(self, config: ModelConfig, place: Placement) -> None:
        super().__init__(config, place)
        self.rotary_emb = self.make_rotary(config, place)
        self.model = Qwen2MoeModel(config, place)
        tied_to = self.model.embed_tokens if config.tie_word_embeddings else None
        self.lm_head = LMHead(config.vocab_size, config.hidden_size, place, tied_to)

    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor, ctx: Context) -> torch.Tensor:
        hidden: torch.Tensor = self.model(input_ids, self.rotary_emb(positions), ctx)
        return hidden

    def load_weight(self, name: str, tensor: torch.Tensor | GroupedTensor) -> None:
        """As elsewhere; in GGUF files a matrix of one row is a vector."""
        if name.endswith(".shared_expert_gate.weight") and len(tensor.shape) == 1:
            tensor = dense(tensor)[None]
        for own_name, matrix in split_experts(name, tensor):
            super().load_weight(own_name, matrix)
