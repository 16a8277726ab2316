"""What all causal language models share: how one is made, how weights come in, and how logits come out.

Shape letters: T tokens in the batch, N rows wanted, H hidden size, V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import nn

from minisgl.core import Context
from minisgl.distributed import SINGLE, TPInfo
from minisgl.kernel import soft_cap
from minisgl.layers import LMHead, Placement, RotaryEmbedding
from minisgl.models.config import ModelConfig
from minisgl.models.extra_tensors import warn_of
from minisgl.models.pending import HEAD, PendingWeights
from minisgl.models.registry import MODELS
from minisgl.models.rope import RopeConfig
from minisgl.utils.grouped_tensor import GroupedTensor, dense
from minisgl.utils.logging import get_logger

logger = get_logger(__name__)

ROPE_FREQS = "rope_freqs.weight"


def create_model(
    config: ModelConfig,
    dtype: torch.dtype,
    device: torch.device,
    tp: TPInfo = SINGLE,
    quantization: str = "none",
    deterministic: bool = True,
) -> BaseCausalLM:
    """The model, with this rank's share of every weight allocated on `device` but not written.

    quantization, deterministic: as of Placement.

    Next come `load_weight` for every tensor and `finish_loading`, or `init_dummy_weights`. Errors of `check_shares`.
    """
    check_shares(config, tp)
    return MODELS[config.architecture]()(config, Placement(dtype, device, tp, quantization, deterministic))


def check_shares(config: ModelConfig, tp: TPInfo) -> None:
    """ValueError, with numbers, if the ranks cannot share the model evenly. (A vocabulary is padded.)"""
    for name in ("num_qo_heads", "num_kv_heads", "intermediate_size"):
        tp.shard(name, getattr(config, name))
    if config.experts is not None:
        tp.shard("the inner size of experts", config.experts.inner_size)


class BaseCausalLM(nn.Module, ABC):
    """A model that is being loaded, until `finish_loading`; then one that `forward` and `compute_logits` can run.

    Submodules are named so that a layer's path is the prefix of its tensors in a Hugging Face checkpoint. Subclasses
    make `lm_head` and `rotary_emb`.
    """

    lm_head: LMHead
    rotary_emb: RotaryEmbedding
    # What Hugging Face's class has for keys that a config.json leaves out, where that is not what Llama has.
    config_defaults: ClassVar[Mapping[str, Any]] = {}
    # Which values of hidden_act `forward` heeds.
    activations: ClassVar[tuple[str, ...]] = ("silu",)
    # Whether `forward` heeds a partial_rotary_factor.
    turns_in_part: ClassVar[bool] = False
    # Whether layers may have a window; layer_types says which, and comes from `plain_config` where the config has none.
    windowed: ClassVar[bool] = True

    def __init__(self, config: ModelConfig, place: Placement) -> None:
        super().__init__()
        self.config = config
        self.place = place
        self._pending: PendingWeights | None = None

    @staticmethod
    def make_rotary(config: ModelConfig, place: Placement, rope: RopeConfig | None = None) -> RotaryEmbedding:
        """The turns that `rope` describes, for sequences of up to the config's max_position_embeddings tokens.

        rope: None takes the config's `rope`.
        """
        rope = rope or config.rope
        inv_freq = rope.inverse_frequencies(config.head_dim, config.max_position_embeddings)
        return RotaryEmbedding(inv_freq, place, config.head_dim, rope.attention_factor)

    @classmethod
    def plain_config(cls, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """A config.json in the keys that `ModelConfig.from_hf` reads, where this architecture spells them otherwise.

        config: with `config_defaults` where it lacks a key; it may have nulls.
        """
        return config

    @classmethod
    def config_fields(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        """Fields of ModelConfig that only this architecture reads, from a config.json with its defaults and no nulls.

        ValueError that names what is not supported.
        """
        return {}

    @abstractmethod
    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor, ctx: Context) -> torch.Tensor:
        """input_ids, positions: [T] int32 or int64 -> hidden states after the final norm, [T, H]."""

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden: [N, H], the rows that are wanted -> [N, V] of the model's dtype."""
        logits: torch.Tensor = self.lm_head(hidden)
        if self.config.logit_softcap:
            soft_cap(logits, self.config.logit_softcap)
        return logits

    def load_weight(self, name: str, tensor: torch.Tensor | GroupedTensor) -> None:
        """Take what this rank needs of one checkpoint tensor, by its Hugging Face name.

        ROPE_FREQS, which only GGUF files have, divides the rotary frequencies. Precomputed frequencies are ignored, and
        a head of its own where the config ties it to the embedding: some exports leave a stale one in the file.
        Other tensors that the model has no use for are left out, see `part_in_answers`. ValueError that names the
        tensor if it must not be left out, or the weight has another shape.
        """
        if name.endswith("rotary_emb.inv_freq"):
            return
        if name == ROPE_FREQS:
            self.rotary_emb.divide_frequencies(name, dense(tensor))
        elif name == HEAD and self.lm_head.tied:
            logger.warning("the config ties the head to the embedding, so %s of the checkpoint is not used", name)
        else:
            self._weights().take(name, tensor)

    def finish_loading(self) -> None:
        """Warn of tensors that were left out. ValueError that names tensors that never came."""
        self._weights().finish()
        if self.place.tp.rank == 0:
            warn_of(self._weights().extra)
        self._pending = None
        self.place.scratch.clear()

    def init_dummy_weights(self, seed: int) -> None:
        """Small random weights in place of a checkpoint, and loading is finished.

        The same ones for a seed, whatever the number of ranks.
        """
        generator = torch.Generator(self.place.device).manual_seed(seed)
        for name, slot in self._weights().slots():
            tensor = torch.empty(slot.shape, dtype=self.place.dtype, device=self.place.device)
            if len(slot.shape) == 1:
                tensor.fill_(0.0 if name.endswith(".bias") else 1.0 - slot.offset)
            else:
                tensor.normal_(std=0.02, generator=generator)
            self.load_weight(name, tensor)
        self.finish_loading()

    def _weights(self) -> PendingWeights:
        if self._pending is None:
            self._pending = PendingWeights(self)
        return self._pending
