"""Config fields that explain themselves: the command line's flags and help are made from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any


def option(default: Any, help: str, *, choices: Sequence[str] = (), flag: str | None = None) -> Any:
    """A dataclass field with its help text. flag: its name on the command line, if not the field's own."""
    return field(default=default, metadata={"help": help, "choices": tuple(choices), "flag": flag})
