"""GPT-OSS: experts with biases and a gate that is clamped; every second layer sees a window; each head has a sink.

Shape letters: T tokens in the batch, H hidden size, Hq and Hkv heads of this rank, D head dim, E experts, I inner size.
`forward` is called by its name: nn.Module's own call looks for hooks, of which there are none, for some us a time.
Source: arXiv:2508.10925; module names as in transformers' `modeling_gpt_oss.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, ClassVar

import torch
from torch import nn

from minisgl.core import Context
from minisgl.distributed import all_reduce
from minisgl.layers import (
    AttentionLayer,
    ColumnParallelLinear,
    Layer,
    LMHead,
    Placement,
    RMSNorm,
    Rotation,
    RowParallelLinear,
    VocabParallelEmbedding,
    WeightSlot,
)
from minisgl.models.base import BaseCausalLM
from minisgl.models.config import ModelConfig
from minisgl.models.expert_config import ExpertConfig
from minisgl.models.values import count, positive
from minisgl.models.windows import FULL, LOCAL
from minisgl.moe import ClampedGate, Experts, Router, Weight, split_experts
from minisgl.utils.grouped_tensor import GroupedTensor, dense

_STACK = re.compile(r"(.*\.experts)\.(gate_up|down)_proj(_bias|\.weight)?")


class Sinks(Layer):
    """A score of every head, for no token: what the softmax gives it is given to nothing."""

    def __init__(self, num_heads: int, place: Placement) -> None:
        super().__init__()
        share = place.tp.shard("num_qo_heads", num_heads)
        self.num_heads, self.start = num_heads, place.tp.rank * share
        self.weight = place.parameter(share)

    def slots(self) -> dict[str, WeightSlot]:
        return {"weight": WeightSlot((self.num_heads,), self.weight, start=self.start)}


class GptOssAttention(nn.Module):
    """q, k, v in one matmul."""

    def __init__(self, config: ModelConfig, layer_id: int, place: Placement) -> None:
        super().__init__()
        hidden, head_dim, bias = config.hidden_size, config.head_dim, config.attention_bias
        q_size, kv_size = config.num_qo_heads * head_dim, config.num_kv_heads * head_dim
        num_qo_heads = place.tp.shard("num_qo_heads", config.num_qo_heads)
        num_kv_heads = place.tp.shard("num_kv_heads", config.num_kv_heads)
        parts = {"q_proj": q_size, "k_proj": kv_size, "v_proj": kv_size}
        self.qkv_proj = ColumnParallelLinear(hidden, parts, bias, place)
        self.sinks = Sinks(config.num_qo_heads, place)
        self.attn = AttentionLayer(layer_id, num_qo_heads, num_kv_heads, head_dim, sinks=self.sinks.weight)
        self.o_proj = RowParallelLinear(q_size, hidden, bias, place)

    def forward(
        self, x: torch.Tensor, residual: torch.Tensor | None, norm: RMSNorm, rotation: Rotation, ctx: Context
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(attention of norm(residual + x), residual + x); both [T, H], given up."""
        qkv, residual = self.qkv_proj.after_norm(x, residual, norm)
        return self.o_proj.forward(self.attn.forward(qkv, rotation, ctx)), residual


class GptOssMLP(nn.Module):
    """The weighted sum of the MLPs that the router chooses for each token."""

    def __init__(self, config: ModelConfig, place: Placement) -> None:
        super().__init__()
        assert config.experts is not None
        self.tp, experts = place.tp, config.experts
        num_experts, num_chosen = experts.num_experts, experts.num_chosen
        self.router = Router(config.hidden_size, num_experts, num_chosen, experts.normalised, place, bias=True)
        self.experts = Experts(
            num_experts, config.hidden_size, experts.inner_size, place, bias=True, gate=experts.clamped_gate
        )

    def forward(self, x: torch.Tensor, residual: torch.Tensor, norm: RMSNorm) -> tuple[torch.Tensor, torch.Tensor]:
        """(the experts' sum of norm(residual + x), residual + x); both [T, H], given up."""
        x, residual = norm.add_and_norm(x, residual)
        return all_reduce(self.experts.partial(x, self.router.choose(x)), self.tp), residual


class GptOssDecoderLayer(nn.Module):
    """Attention, then experts. The residual stream travels beside x, which is what is still to be added to it."""

    def __init__(self, config: ModelConfig, layer_id: int, place: Placement) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps, place)
        self.self_attn = GptOssAttention(config, layer_id, place)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps, place)
        self.mlp = GptOssMLP(config, place)

    def forward(
        self, x: torch.Tensor, residual: torch.Tensor | None, rotation: Rotation, ctx: Context
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """x, residual: [T, H], given up; no residual in the first layer."""
        x, residual = self.self_attn.forward(x, residual, self.input_layernorm, rotation, ctx)
        return self.mlp.forward(x, residual, self.post_attention_layernorm)


class GptOssModel(nn.Module):
    """Embedding, layers, final norm."""

    def __init__(self, config: ModelConfig, place: Placement) -> None:
        super().__init__()
        self.embed_tokens = VocabParallelEmbedding(config.vocab_size, config.hidden_size, place)
        self.layers = nn.ModuleList(GptOssDecoderLayer(config, i, place) for i in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps, place)

    def forward(self, input_ids: torch.Tensor, rotation: Rotation, ctx: Context) -> torch.Tensor:
        x, residual = self.embed_tokens(input_ids), None
        for layer in self.layers:
            x, residual = layer(x, residual, rotation, ctx)
        return self.norm.add_and_norm(x, residual)[0]


class GptOssForCausalLM(BaseCausalLM):
    """The whole model."""

    config_defaults: ClassVar[Mapping[str, Any]] = {
        "attention_bias": True,
        "head_dim": 64,
        "num_experts_per_tok": 4,
        "num_key_value_heads": 8,
        "num_local_experts": 128,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {
            "rope_type": "yarn",
            "factor": 32.0,
            "original_max_position_embeddings": 4096,
            "truncate": False,
        },
        "rope_theta": 150000.0,
        "sliding_window": 128,
        "torch_dtype": "bfloat16",
    }

    @classmethod
    def plain_config(cls, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """The first layer and every second one from there on has a window, unless a list says which."""
        kinds = [FULL if i % 2 else LOCAL for i in range(count(config, "num_hidden_layers"))]
        return {**config, "layer_types": config.get("layer_types") or kinds}

    @classmethod
    def config_fields(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        experts = ExpertConfig(
            num_experts=count(config, "num_local_experts"),
            num_chosen=count(config, "num_experts_per_tok"),
            inner_size=count(config, "intermediate_size"),
            normalised=True,
            clamped_gate=ClampedGate(positive(config, "swiglu_alpha", 1.702), positive(config, "swiglu_limit", 7.0)),
        )
        return {"experts": experts, "attn_sinks": True}

    def __init__(self, config: ModelConfig, place: Placement) -> None:
        super().__init__(config, place)
        self.rotary_emb = self.make_rotary(config, place)
        self.model = GptOssModel(config, place)
        tied_to = self.model.embed_tokens if config.tie_word_embeddings else None
        self.lm_head = LMHead(config.vocab_size, config.hidden_size, place, tied_to)

    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor, ctx: Context) -> torch.Tensor:
        hidden: torch.Tensor = self.model(input_ids, self.rotary_emb(positions), ctx)
        return hidden

    def load_weight(self, name: str, tensor: torch.Tensor | GroupedTensor) -> None:
        if name.endswith(".sinks"):
            name += ".weight"
        for stack_name, stack in _plain_stacks(name, tensor):
            for own_name, part in split_experts(stack_name, stack):
                super().load_weight(own_name, part)


def _plain_stacks(name: str, tensor: torch.Tensor | GroupedTensor) -> Iterator[Weight]:
    """The tensor by itself; or a stack of experts as `split_experts` wants it: views of each kind, [E, out, in].

    gate_up_proj.weight, which is MXFP4: [E, 2 * I, H], gate and up alternate. gate_up_proj: [E, H, 2 * I], its bias
    [E, 2 * I], down_proj [E, I, H], its bias [E, H].
    """
    match = _STACK.fullmatch(name)
    if match is None or len(tensor.shape) != (2 if match[3] == "_bias" else 3):
        yield name, tensor
        return
    stack = tensor if match[3] else dense(tensor).mT
    kinds = ("gate", "up") if match[2] == "gate_up" else ("down",)
    for first, kind in enumerate(kinds):
        pick = partial(_every, first=first, step=len(kinds))
        part = pick(stack) if isinstance(stack, torch.Tensor) else stack.map_rows(pick)
        yield f"{match[1]}.{kind}_proj.{'bias' if match[3] == '_bias' else 'weight'}", part


def _every(stack: torch.Tensor, first: int, step: int) -> torch.Tensor:
    return stack[:, first::step]
