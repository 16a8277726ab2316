"""How many experts a model's layers have."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ExpertConfig:
    """num_chosen: experts of a token. inner_size: of one expert. normalised: a token's weights sum to 1.

    dense_layers: those that have an MLP of the model's intermediate_size in place of experts.
    """

    num_experts: int
    num_chosen: int
    inner_size: int
    normalised: bool
    dense_layers: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if self.num_chosen > self.num_experts:
            raise ValueError(f"num_experts_per_tok={self.num_chosen} is more than num_experts={self.num_experts}")
