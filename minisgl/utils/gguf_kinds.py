"""What kind of value the metadata of a GGUF file must have, so that those who read it need not look. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

_TEXT, _FLAG, _TOKEN = (str, "a text"), (bool, "true or false"), (int, "a token id")
_ONE: dict[str, tuple[type, str]] = {
    "general.architecture": _TEXT,
    "tokenizer.chat_template": _TEXT,
    "tokenizer.ggml.model": _TEXT,
    "tokenizer.ggml.pre": _TEXT,
    **{f"tokenizer.ggml.{flag}": _FLAG for flag in ("add_bos_token", "add_eos_token", "add_space_prefix")},
    **{f"tokenizer.ggml.{name}_token_id": _TOKEN for name in ("bos", "eos", "eot", "eom", "unknown", "padding")},
}
_LISTS: dict[str, tuple[type, str]] = {
    "tokenizer.chat_templates": (str, "texts"),
    "tokenizer.ggml.tokens": (str, "texts"),
    "tokenizer.ggml.merges": (str, "texts"),
    "tokenizer.ggml.scores": (float, "numbers"),
    "tokenizer.ggml.token_type": (int, "integers"),
}


def check_kinds(metadata: Mapping[str, Any], path: Path) -> None:
    """ValueError that names the file and the key of a value of another kind. All entries of a list are of one."""
    for key, (kind, name) in _ONE.items():
        if key in metadata and type(metadata[key]) is not kind:
            raise ValueError(f"{path}: {key} is {metadata[key]!r:.40}, not {name}")
    for key, (kind, name) in _LISTS.items():
        values = metadata.get(key, [])
        if not isinstance(values, list) or any(type(value) is not kind for value in values[:1]):
            raise ValueError(f"{path}: {key} is {values!r:.40}, not a list of {name}")
