"""How many experts a model's layers have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from minisgl.models.values import count, flag
from minisgl.moe import ClampedGate


@dataclass(frozen=True, kw_only=True)
class ExpertConfig:
    """num_chosen: experts of a token. inner_size: of one expert. normalised: a token's weights sum to 1.

    shared_size: the inner size of an expert that every token uses besides, 0 for none. dense_layers: those that have an
    MLP of the model's intermediate_size in place of experts. clamped_gate: how an expert joins gate and up; None:
    silu(gate) * up.
    """

    num_experts: int
    num_chosen: int
    inner_size: int
    normalised: bool
    shared_size: int = 0
    dense_layers: frozenset[int] = frozenset()
    clamped_gate: ClampedGate | None = None

    def __post_init__(self) -> None:
        if self.num_chosen > self.num_experts:
            raise ValueError(f"num_experts_per_tok={self.num_chosen} is more than num_experts={self.num_experts}")

    @classmethod
    def from_qwen(cls, config: Mapping[str, Any], shared_size: int = 0) -> ExpertConfig:
        """By the names that all of Qwen's models have for these. ValueError that names what is wrong."""
        return cls(
            num_experts=count(config, "num_local_experts" if "num_local_experts" in config else "num_experts"),
            num_chosen=count(config, "num_experts_per_tok"),
            inner_size=count(config, "moe_intermediate_size"),
            normalised=flag(config, "norm_topk_prob"),
            shared_size=shared_size,
            dense_layers=_dense_layers(config),
        )


def _dense_layers(config: Mapping[str, Any]) -> frozenset[int]:
    """Those that are listed, and all but every `decoder_sparse_step`-th."""
    listed = config.get("mlp_only_layers", [])
    if not isinstance(listed, list) or not all(isinstance(layer, int) for layer in listed):
        raise ValueError(f"mlp_only_layers={listed!r} of the model's config is not a list of layers")
    step = count(config, "decoder_sparse_step", 1)
    layers = range(count(config, "num_hidden_layers"))
    return frozenset(layer for layer in layers if layer in listed or (layer + 1) % step != 0)
