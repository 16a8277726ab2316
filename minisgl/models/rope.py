"""How fast each pair of a head turns with position, from a Hugging Face config of either generation.

Source: transformers 5.24, `modeling_rope_utils.py`; arXiv:2309.00071 (yarn), arXiv:2402.13753 (longrope).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from minisgl.models.values import MAX_COUNT, flag, mapping, positive, positives

_INHERITED = ("rope_theta", "partial_rotary_factor", "original_max_position_embeddings")
_ORIGINAL = "original_max_position_embeddings"
_NEEDED: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", _ORIGINAL),
    "yarn": ("factor", _ORIGINAL),
    "longrope": (_ORIGINAL,),
}


@dataclass(frozen=True, kw_only=True)
class RopeConfig:
    """rope_type: a key of _NEEDED. theta: the base. The rest is used by the types that stretch.

    factor: how far positions are stretched. partial_rotary_factor: the share of a head that turns. attention_factor:
    what turns is multiplied by it. low_freq_factor, high_freq_factor: turns within the original context between which
    llama3 blends; beta_slow, beta_fast: the same for yarn, truncate: between whole pairs. short_factor, long_factor:
    of longrope, one number a pair.
    """

    rope_type: str = "default"
    theta: float = 10000.0
    factor: float = 1.0
    partial_rotary_factor: float = 1.0
    attention_factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_slow: float = 1.0
    beta_fast: float = 32.0
    truncate: bool = True
    original_max_position_embeddings: float = 8192
    short_factor: tuple[float, ...] = ()
    long_factor: tuple[float, ...] = ()

    @classmethod
    def from_hf(cls, config: Mapping[str, Any]) -> RopeConfig:
        """From `rope_parameters` (transformers 5), or `rope_scaling` and a top-level `rope_theta` (transformers 4).

        ValueError that names what is unknown, missing or not supported.
        """
        rope = _merge(config)
        rope_type = _rope_type(rope)
        _check(rope_type, rope)
        values: dict[str, Any] = {key: positive(rope, key) for key in _NEEDED[rope_type]}
        values |= _FURTHER.get(rope_type, _nothing)(rope)
        return cls(
            rope_type=rope_type,
            theta=positive(rope, "rope_theta", 10000.0),
            partial_rotary_factor=positive(rope, "partial_rotary_factor", 1.0),
            **values,
        )

    def context(self, stated: int) -> int:
        """The context length in tokens. yarn may be added to a config that still states the original one."""
        if self.rope_type != "yarn":
            return stated
        stretched = int(self.factor * self.original_max_position_embeddings)
        if stretched > MAX_COUNT:
            raise ValueError(f"factor={self.factor} of rope_type='yarn' makes a context of over {MAX_COUNT} tokens")
        return max(stated, stretched)

    def rotary_dim(self, head_dim: int) -> int:
        """How many of a head's elements turn; the first ones."""
        return int(head_dim * self.partial_rotary_factor)

    def check(self, head_dim: int) -> None:
        """ValueError if what turns of a head is no whole number of pairs, or not as many as there are factors."""
        dim = self.rotary_dim(head_dim)
        if dim % 2 != 0 or dim == 0:
            part = f", {dim} elements of which turn" if dim < head_dim else ""
            raise ValueError(f"head_dim={head_dim}{part} is odd: rotary positions turn pairs")
        if self.rope_type == "longrope":
            for name, factors in (("short_factor", self.short_factor), ("long_factor", self.long_factor)):
                if len(factors) != dim // 2:
                    raise ValueError(f"{name} has {len(factors)} numbers, but {dim // 2} pairs of a head turn")

    def is_long(self, context: float) -> bool:
        """Whether sequences of up to `context` tokens take longrope's factors for long ones."""
        return self.rope_type == "longrope" and context > self.original_max_position_embeddings

    def inverse_frequencies(self, head_dim: int, context: float) -> torch.Tensor:
        """[rotary_dim / 2] float32 on the CPU, radians a position.

        context: the longest sequence that is served, in tokens. longrope has factors for sequences within the original
        context and others for longer ones; all sequences take those that the longest one needs, since they share the
        keys of prefixes. dynamic stretches only beyond the context, where nobody is served.
        """
        dim = self.rotary_dim(head_dim)
        inv_freq = 1.0 / self.theta ** (torch.arange(0, dim, 2).float() / dim)
        if self.rope_type == "linear":
            return inv_freq / self.factor
        if self.rope_type == "llama3":
            return inv_freq * self._llama3_scale(inv_freq)
        if self.rope_type == "yarn":
            return inv_freq * self._yarn_scale(dim)
        if self.rope_type == "longrope":
            return inv_freq / torch.tensor(self.long_factor if self.is_long(context) else self.short_factor)
        return inv_freq

    def _llama3_scale(self, inv_freq: torch.Tensor) -> torch.Tensor:
        """1 for wavelengths that turn often within the original context, 1 / factor for long ones, between: a blend."""
        turns = self.original_max_position_embeddings * inv_freq / (2 * math.pi)
        kept = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        return self._blend(kept.clamp(0, 1))

    def _yarn_scale(self, dim: int) -> torch.Tensor:
        """As llama3, but blended evenly over the pairs between those with beta_fast and with beta_slow turns."""
        first, last = self._pair_with_turns(self.beta_fast, dim), self._pair_with_turns(self.beta_slow, dim)
        if self.truncate:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, dim - 1)
        width = last - first if last != first else 0.001
        return self._blend(1 - ((torch.arange(dim // 2).float() - first) / width).clamp(0, 1))

    def _pair_with_turns(self, turns: float, dim: int) -> float:
        """The pair, with a fraction, that turns so often within the original context."""
        wavelength = self.original_max_position_embeddings / (turns * 2 * math.pi)
        return dim * math.log(wavelength) / (2 * math.log(self.theta))

    def _blend(self, kept: torch.Tensor) -> torch.Tensor:
        return kept + (1 - kept) / self.factor


def _merge(config: Mapping[str, Any]) -> dict[str, Any]:
    """The rope dict over what it inherits from the top level, which has the last word on the original context."""
    merged = {key: config[key] for key in _INHERITED if config.get(key) is not None}
    rope = mapping(config, "rope_scaling") or mapping(config, "rope_parameters")
    original = {key: merged[key] for key in (_ORIGINAL,) if key in merged}
    merged |= {key: value for key, value in rope.items() if value is not None} | original
    if config.get("max_position_embeddings") is not None:
        merged.setdefault(_ORIGINAL, config["max_position_embeddings"])
        _derive_factor(merged, config)
    return merged


def _derive_factor(rope: dict[str, Any], config: Mapping[str, Any]) -> None:
    """yarn and longrope stretch the original context to the whole one, unless they say how far."""
    if _rope_type(rope) in ("yarn", "longrope"):
        rope.setdefault("factor", positive(config, "max_position_embeddings") / positive(rope, _ORIGINAL))


def _rope_type(rope: Mapping[str, Any]) -> Any:
    """Early Phi-3 configs call longrope su, or yarn."""
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    return "longrope" if rope_type in ("su", "yarn") and "long_factor" in rope else rope_type


def _check(rope_type: Any, rope: Mapping[str, Any]) -> None:
    if nested := [key for key, value in rope.items() if isinstance(value, Mapping)]:
        raise ValueError(f"rope parameters that differ by kind of layer are not supported: {', '.join(nested)}")
    if not isinstance(rope_type, str) or rope_type not in _NEEDED:
        raise ValueError(f"rope_type={rope_type!r} is not supported; known: {', '.join(_NEEDED)}")
    if missing := [key for key in _NEEDED[rope_type] if key not in rope]:
        raise ValueError(f"rope_type={rope_type!r} needs {', '.join(missing)}")
    if (partial := positive(rope, "partial_rotary_factor", 1.0)) > 1:
        raise ValueError(f"partial_rotary_factor={partial} of the model's config is over 1")
    _check_numbers(rope_type, rope)


def _check_numbers(rope_type: str, rope: Mapping[str, Any]) -> None:
    """Each is above 0, which its reader checks; some pairs of them make no sense, and divide by 0."""
    if rope_type == "yarn" and positive(rope, "rope_theta", 10000.0) <= 1:
        raise ValueError("rope_theta of the model's config is not over 1, as yarn needs it")
    if rope_type == "longrope" and positive(rope, _ORIGINAL) <= 1:
        raise ValueError(f"{_ORIGINAL} of the model's config is not over 1, as longrope needs it")
    if rope_type == "llama3" and positive(rope, "high_freq_factor") <= positive(rope, "low_freq_factor"):
        raise ValueError("high_freq_factor of the model's config is not over low_freq_factor, as llama3 needs it")


def _nothing(rope: Mapping[str, Any]) -> dict[str, Any]:
    return {}


def _yarn(rope: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "beta_fast": positive(rope, "beta_fast", 32.0),
        "beta_slow": positive(rope, "beta_slow", 1.0),
        "truncate": flag(rope, "truncate", True),
        "attention_factor": positive(rope, "attention_factor", _yarn_attention(rope)),
    }


def _yarn_attention(rope: Mapping[str, Any]) -> float:
    factor = positive(rope, "factor")
    if rope.get("mscale") and rope.get("mscale_all_dim"):
        numerator = _mscale(factor, positive(rope, "mscale"))
        return numerator / _mscale(factor, positive(rope, "mscale_all_dim"))
    return _mscale(factor, 1.0)


def _mscale(factor: float, weight: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def _longrope(rope: Mapping[str, Any]) -> dict[str, Any]:
    factor, original = positive(rope, "factor"), positive(rope, _ORIGINAL)
    attention = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    return {
        "short_factor": positives(rope, "short_factor"),
        "long_factor": positives(rope, "long_factor"),
        "attention_factor": positive(rope, "attention_factor", attention),
    }


_FURTHER = {"yarn": _yarn, "longrope": _longrope}
