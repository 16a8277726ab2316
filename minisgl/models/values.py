"""Single values of a config.json, checked: a value of the right kind or a ValueError, whatever a file holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

# More is a damaged file, not a model: of heads, tokens, features; of what takes long to make one by one.
MAX_COUNT = 2**24
MAX_LAYERS = 2**10
_MAX_COUNTS = dict.fromkeys(("num_hidden_layers", "num_experts", "num_local_experts"), MAX_LAYERS)
_FLOAT = torch.finfo(torch.float32)  # in which all numbers end up


def count(config: Mapping[str, Any], key: str, default: int | None = None, least: int = 1) -> int:
    """A number of things. default: None means that the key must be there."""
    value = config.get(key, default)
    if value is None:
        raise ValueError(f"the model's config lacks {key!r}")
    most = _MAX_COUNTS.get(key, MAX_COUNT)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{key}={value!r} of the model's config is not an integer in [{least}, {most}]")
    return value


def positive(config: Mapping[str, Any], key: str, default: float | None = None) -> float:
    """A number above 0, in float32's range."""
    value = config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not _FLOAT.tiny <= value <= _FLOAT.max:
        raise ValueError(f"{key}={value!r} of the model's config is not a number above 0 and in float32's range")
    return float(value)


def positives(config: Mapping[str, Any], key: str) -> tuple[float, ...]:
    """A list of such numbers; the key must be there."""
    value = config.get(key)
    if not isinstance(value, list):
        raise ValueError(f"{key}={value!r} of the model's config is not a list of numbers above 0")
    return tuple(positive({key: number}, key) for number in value)


def flag(config: Mapping[str, Any], key: str, default: bool = False) -> bool:
    """True or false."""
    value = config.get(key, default)
    if not isinstance(value, bool):
        raise ValueError(f"{key}={value!r} of the model's config is not true or false")
    return value


def mapping(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Keys and values; none where there is no such key, or a null."""
    value = config.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError(f"{key}={value!r} of the model's config is not a mapping")
    return value


def switches(config: Mapping[str, Any], key: str, length: int) -> list[bool]:
    """The first `length` of a list of zeros and ones."""
    value = config.get(key)
    if not isinstance(value, list) or len(value) < length or not all(number in (0, 1) for number in value):
        raise ValueError(f"{key}={value!r} of the model's config is not a list of {length} zeros and ones")
    return [number == 1 for number in value[:length]]


def names(config: Mapping[str, Any], key: str) -> list[str]:
    """A list of strings, maybe empty."""
    value = config.get(key, [])
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ValueError(f"{key}={value!r} of the model's config is not a list of names")
    return value
