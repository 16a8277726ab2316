"""Config fields that explain themselves: the command line's flags, their help and their checks are made from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import Field, field, fields
from numbers import Integral
from typing import Any


def option(
    default: Any, help: str, *, choices: Sequence[str] = (), flag: str | None = None, minimum: int | None = None
) -> Any:
    """A dataclass field with its help text. flag: its name on the command line, if not the field's own.

    choices: the only strings allowed. minimum: the smallest integer allowed; such a field takes nothing but integers.
    """
    metadata = {"help": help, "choices": tuple(choices), "flag": flag, "minimum": minimum}
    return field(default=default, metadata=metadata)


def check_choices(config: Any) -> None:
    """ValueError, naming field and choices, when a field with `choices` holds something else."""
    for spec, value in _given(config):
        choices = spec.metadata.get("choices")
        if choices and value not in choices:
            raise ValueError(f"{spec.name}={value!r} is not one of {', '.join(choices)}")


def check_minimum(config: Any) -> None:
    """ValueError, naming field and bound, when a field with `minimum` holds something else or less."""
    for spec, value in _given(config):
        minimum = spec.metadata.get("minimum")
        if minimum is None:
            continue
        if isinstance(value, bool) or not isinstance(value, Integral) or value < minimum:
            raise ValueError(f"{spec.name}={value!r} is not an integer of at least {minimum}")
        object.__setattr__(config, spec.name, int(value))  # NumPy's integers are welcome, and kept as Python's


def _given(config: Any) -> Iterator[tuple[Field[Any], Any]]:
    """Fields and values, without those that are None and may be."""
    pairs = ((spec, getattr(config, spec.name)) for spec in fields(config))
    return ((spec, value) for spec, value in pairs if value is not None or spec.default is not None)
