"""How fast each pair of a head turns with position, from a Hugging Face config of either generation.

Source: transformers 5.24, `modeling_rope_utils.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from minisgl.models.values import positive

_INHERITED = ("rope_theta", "partial_rotary_factor", "original_max_position_embeddings")
_NEEDED = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}


@dataclass(frozen=True)
class RopeConfig:
    """rope_type: "default", "linear" or "llama3". theta: the base. The rest is used by the types that stretch.

    factor: how far positions are stretched. The last three say which wavelengths llama3 stretches.
    """

    rope_type: str = "default"
    theta: float = 10000.0
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: float = 8192

    @classmethod
    def from_hf(cls, config: Mapping[str, Any]) -> RopeConfig:
        """From `rope_parameters` (transformers 5), or `rope_scaling` and a top-level `rope_theta` (transformers 4).

        ValueError that names what is unknown, missing or not supported.
        """
        rope = _merge(config)
        rope_type = rope.get("rope_type", rope.get("type", "default"))
        _check(rope_type, rope)
        theta = positive(rope, "rope_theta", 10000.0)
        return cls(rope_type, theta, **{key: positive(rope, key) for key in _NEEDED[rope_type]})

    def inverse_frequencies(self, head_dim: int) -> torch.Tensor:
        """[head_dim / 2] float32 on the CPU, radians a position."""
        inv_freq = 1.0 / self.theta ** (torch.arange(0, head_dim, 2).float() / head_dim)
        if self.rope_type == "llama3":
            return inv_freq * self._llama3_scale(inv_freq)
        return inv_freq / self.factor

    def _llama3_scale(self, inv_freq: torch.Tensor) -> torch.Tensor:
        """1 for wavelengths that turn often within the original context, 1 / factor for long ones, between: a blend."""
        turns = self.original_max_position_embeddings * inv_freq / (2 * math.pi)
        kept = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        kept = kept.clamp(0, 1)
        return kept + (1 - kept) / self.factor


def _merge(config: Mapping[str, Any]) -> dict[str, Any]:
    """The rope dict over what it inherits from the top level."""
    merged = {key: config[key] for key in _INHERITED if config.get(key) is not None}
    if "max_position_embeddings" in config:
        merged.setdefault("original_max_position_embeddings", config["max_position_embeddings"])
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if not isinstance(rope, Mapping):
        raise ValueError(f"the rope parameters of the model's config are not a mapping, but {rope!r}")
    return merged | {key: value for key, value in rope.items() if value is not None}


def _check(rope_type: str, rope: Mapping[str, Any]) -> None:
    if nested := [key for key, value in rope.items() if isinstance(value, Mapping)]:
        raise ValueError(f"rope parameters that differ by kind of layer are not supported: {', '.join(nested)}")
    if not isinstance(rope_type, str) or rope_type not in _NEEDED:
        raise ValueError(f"rope_type={rope_type!r} is not supported; known: {', '.join(_NEEDED)}")
    if missing := [key for key in _NEEDED[rope_type] if key not in rope]:
        raise ValueError(f"rope_type={rope_type!r} needs {', '.join(missing)}")
    if (partial := rope.get("partial_rotary_factor", 1.0)) != 1.0:
        raise ValueError(f"partial_rotary_factor={partial} is not supported; only 1.0 is")
