"""Gemma 3, text: as Gemma 2, but q and k are normalised, not capped, and layers with a window turn in their own way.

Shape letters: T tokens in the batch, H hidden size, Hq and Hkv heads of this rank, D head dim.
`forward` is called by its name: nn.Module's own call looks for hooks, of which there are none, for some us a time.
Source: arXiv:2503.19786; module names as in transformers' `modeling_gemma3.py`.
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
from minisgl.models.local_rope import by_kind_of_layer, local_rope
from minisgl.models.values import count, positive
from minisgl.models.windows import FULL, LOCAL
from minisgl.utils.grouped_tensor import GroupedTensor
from minisgl.utils.logging import get_logger

logger = get_logger(__name__)


def make_norm(size: int, config: ModelConfig, place: Placement) -> RMSNorm:
    """A checkpoint of Gemma has the difference of a norm's weight from 1."""
    return RMSNorm(size, config.rms_norm_eps, place, offset=1.0)


class Gemma3Attention(nn.Module):
    """q, k, v in one matmul; the norms of q and k have one weight vector [D] each for all heads, on every rank."""

    def __init__(self, config: ModelConfig, layer_id: int, place: Placement) -> None:
        super().__init__()
        hidden, head_dim, bias = config.hidden_size, config.head_dim, config.attention_bias
        q_size, kv_size = config.num_qo_heads * head_dim, config.num_kv_heads * head_dim
        num_qo_heads = place.tp.shard("num_qo_heads", config.num_qo_heads)
        num_kv_heads = place.tp.shard("num_kv_heads", config.num_kv_heads)
        parts = {"q_proj": q_size, "k_proj": kv_size, "v_proj": kv_size}
        self.qkv_proj = ColumnParallelLinear(hidden, parts, bias, place)
        self.q_norm = make_norm(head_dim, config, place)
        self.k_norm = make_norm(head_dim, config, place)
        self.attn = AttentionLayer(layer_id, num_qo_heads, num_kv_heads, head_dim, self.q_norm, self.k_norm)
        self.o_proj = RowParallelLinear(q_size, hidden, bias, place)

    def forward(
        self, x: torch.Tensor, residual: torch.Tensor | None, norm: RMSNorm, rotation: Rotation, ctx: Context
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(attention of norm(residual + x), residual + x); both [T, H], given up."""
        qkv, residual = self.qkv_proj.after_norm(x, residual, norm)
        return self.o_proj.forward(self.attn.forward(qkv, rotation, ctx)), residual


class Gemma3MLP(nn.Module):
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


class Gemma3DecoderLayer(nn.Module):
    """Attention, then MLP; what each gives is normalised, too. The residual stream travels beside x."""

    def __init__(self, config: ModelConfig, layer_id: int, place: Placement) -> None:
        super().__init__()
        self.input_layernorm = make_norm(config.hidden_size, config, place)
        self.self_attn = Gemma3Attention(config, layer_id, place)
        self.post_attention_layernorm = make_norm(config.hidden_size, config, place)
        self.pre_feedforward_layernorm = make_norm(config.hidden_size, config, place)
        self.mlp = Gemma3MLP(config, place)
        self.post_feedforward_layernorm = make_norm(config.hidden_size, config, place)

    def forward(
        self, x: torch.Tensor, residual: torch.Tensor | None, rotation: Rotation, ctx: Context
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """x, residual: [T, H], given up; no residual in the first layer."""
        x, residual = self.self_attn.forward(x, residual, self.input_layernorm, rotation, ctx)
        x = self.post_attention_layernorm.forward(x)
        x, residual = self.mlp.forward(x, residual, self.pre_feedforward_layernorm)
        return self.post_feedforward_layernorm.forward(x), residual


class Gemma3Model(nn.Module):
    """Embedding, whose scale is rounded as weights are, layers, final norm."""

    def __init__(self, config: ModelConfig, place: Placement) -> None:
        super().__init__()
        self.embed_tokens = VocabParallelEmbedding(config.vocab_size, config.hidden_size, place)
        self.embed_scale = torch.tensor(config.hidden_size**0.5, dtype=place.dtype).item()
        self.layers = nn.ModuleList(Gemma3DecoderLayer(config, i, place) for i in range(config.num_layers))
        self.norm = make_norm(config.hidden_size, config, place)
        self.local_layers = config.local_layers

    def forward(self, input_ids: torch.Tensor, rotation: Rotation, local: Rotation, ctx: Context) -> torch.Tensor:
        """local: the rotation of the local layers."""
        x, residual = self.embed_tokens(input_ids).mul_(self.embed_scale), None
        for i, layer in enumerate(self.layers):
            x, residual = layer.forward(x, residual, local if i in self.local_layers else rotation, ctx)
        return self.norm.add_and_norm(x, residual)[0]


class Gemma3ForCausalLM(BaseCausalLM):
    """The whole model."""

    activations: ClassVar[tuple[str, ...]] = ("gelu_pytorch_tanh", "silu")
    config_defaults: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 262208,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh",
        "max_position_embeddings": 131072,
        "query_pre_attn_scalar": 256,
        "sliding_window": 4096,
        "sliding_window_pattern": 6,
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
        "tie_word_embeddings": True,
    }

    @classmethod
    def plain_config(cls, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """The activation has a key of its own beside hidden_act; of every six layers, the last one sees everything."""
        pattern, num_layers = count(config, "sliding_window_pattern"), count(config, "num_hidden_layers")
        kinds = [LOCAL if (i + 1) % pattern else FULL for i in range(num_layers)]
        plain = {"hidden_act": config["hidden_activation"], "layer_types": config.get("layer_types") or kinds}
        return {**config, **plain, **by_kind_of_layer(config)}

    @classmethod
    def config_fields(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        """transformers has attn_logit_softcapping in the config, but does not heed it."""
        return {
            "attn_scale": positive(config, "query_pre_attn_scalar") ** -0.5,
            "logit_softcap": positive(config, "final_logit_softcapping")
            if "final_logit_softcapping" in config
            else 0.0,
            "local_rope": local_rope(config, positive(config, "rope_local_base_freq")),
        }

    def __init__(self, config: ModelConfig, place: Placement) -> None:
        super().__init__(config, place)
        self.rotary_emb = self.make_rotary(config, place)
        self.rotary_emb_local = self.make_rotary(config, place, config.local_rope)
        self.model = Gemma3Model(config, place)
        tied_to = self.model.embed_tokens if config.tie_word_embeddings else None
        self.lm_head = LMHead(config.vocab_size, config.hidden_size, place, tied_to)

    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor, ctx: Context) -> torch.Tensor:
        hidden: torch.Tensor = self.model(input_ids, self.rotary_emb(positions), self.rotary_emb_local(positions), ctx)
        return hidden


class Gemma3ForConditionalGeneration(Gemma3ForCausalLM):
    """The model of a checkpoint that sees images, too: its part for text, which alone is served.

    Names as they were published (language_model.model.*) and as transformers has them since (model.language_model.*).
    """

    _FOR_IMAGES = ("vision_tower.", "multi_modal_projector.")

    @classmethod
    def plain_config(cls, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the part for text says, but whether the head is tied is said for the whole."""
        text = config.get("text_config")
        parts = {**config, **(text if isinstance(text, Mapping) else {})}
        return super().plain_config({**parts, "tie_word_embeddings": config["tie_word_embeddings"]})

    @classmethod
    def config_fields(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        """Transformers does not heed final_logit_softcapping here, either."""
        return super().config_fields(config) | {"logit_softcap": 0.0}

    def __init__(self, config: ModelConfig, place: Placement) -> None:
        super().__init__(config, place)
        self._num_skipped = 0

    def load_weight(self, name: str, tensor: torch.Tensor | GroupedTensor) -> None:
        if name.removeprefix("model.").startswith(self._FOR_IMAGES):
            self._num_skipped += 1
        elif name.startswith("model.language_model."):
            super().load_weight(name.replace("language_model.", "", 1), tensor)
        else:
            super().load_weight(name.removeprefix("language_model."), tensor)

    def finish_loading(self) -> None:
        super().finish_loading()
        if self._num_skipped:
            logger.info(
                "only text is served: %d tensors of the model's part for images are not used", self._num_skipped
            )
