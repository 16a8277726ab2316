"""How a checkpoint's makers would have its tokens chosen: for requests that do not say it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minisgl.core import FieldError, SamplingParams
from minisgl.utils.logging import get_logger
from minisgl.utils.model_store import stored_model

logger = get_logger(__name__)
Defaults = dict[str, int | float]
FIELDS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
_GGUF = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repetition_penalty",
}


def from_generation_config(file: Path, content: Mapping[str, Any]) -> Defaults:
    """Of generation_config.json: fields of `SamplingParams`, as written there. do_sample: false is temperature 0.

    A null is as good as an absent field. A value that cannot be is left out, and a warning says so: it is advice.
    """
    given = {name: content[name] for name in FIELDS if content.get(name) is not None}
    if content.get("do_sample") is False:
        given["temperature"] = 0.0
    return _usable(file, given)


def from_gguf(file: Path, metadata: Mapping[str, Any]) -> Defaults:
    """The same of a GGUF file's `general.sampling.*`, whose floats have 7 digits.

    A copy of a model that has an alias, under any name, has what its card advises where it says nothing itself.
    """
    given = {name: metadata.get(f"general.sampling.{key}") for key, name in _GGUF.items()}
    rounded = {name: round(value, 6) if isinstance(value, float) else value for name, value in given.items()}
    known = stored_model(file, metadata.get("general.name"))
    return {**(known.sampling if known else {}), **_usable(file, {k: v for k, v in rounded.items() if v is not None})}


def _usable(file: Path, given: Mapping[str, Any]) -> Defaults:
    usable: Defaults = {}
    for name, value in given.items():
        try:
            usable[name] = getattr(SamplingParams(**{name: value}), name)
        except FieldError as error:
            logger.warning("%s: %s, so it is not used", file, error)
    return usable
