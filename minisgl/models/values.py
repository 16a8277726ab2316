"""Single values of a config.json, checked: a value of the right kind or a ValueError, whatever a file holds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

MAX_COUNT = 2**24  # of heads, layers, tokens, features: larger ones are a damaged file, not a model


def count(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """A number of things, at least one. default: None means that the key must be there."""
    value = config.get(key, default)
    if value is None:
        raise ValueError(f"the model's config lacks {key!r}")
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_COUNT:
        raise ValueError(f"{key}={value!r} of the model's config is not an integer in [1, {MAX_COUNT}]")
    return value


def positive(config: Mapping[str, Any], key: str, default: float | None = None) -> float:
    """A finite number above 0."""
    value = config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"{key}={value!r} of the model's config is not a number above 0")
    return float(value)


def flag(config: Mapping[str, Any], key: str) -> bool:
    """True or false; false where it is absent."""
    value = config.get(key, False)
    if not isinstance(value, bool):
        raise ValueError(f"{key}={value!r} of the model's config is not true or false")
    return value


def names(config: Mapping[str, Any], key: str) -> list[str]:
    """A list of strings, maybe empty."""
    value = config.get(key, [])
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ValueError(f"{key}={value!r} of the model's config is not a list of names")
    return value
