"""Which method quantised the weights of a Hugging Face folder: one that we read, or one to be refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Where config.json has it: transformers and most tools, older compressed-tensors, MLX (which writes the first one too).
_KEYS = {"quantization": "mlx", "compression_config": "compressed-tensors", "quantization_config": "unnamed"}
# What is read, and in which architecture: its checkpoints alone have it.
READ = {"mxfp4": "GptOssForCausalLM"}
_FILES = {"quantize_config.json": "gptq", "quant_config.json": "awq", "hf_quant_config.json": "modelopt"}


def quantization_method(folder: Path, config: Mapping[str, Any]) -> str | None:
    """Such as "awq"; None if nothing says that they are quantised.

    config: that of config.json; that of its language model (`text_config`) counts, too. Older tools write nothing there
    but a file of their own beside it.
    """
    text = config.get("text_config")
    parts = [config, *([text] if isinstance(text, Mapping) else [])]
    named = (_named(part[key], other) for part in parts for key, other in _KEYS.items() if part.get(key))
    beside = (method for name, method in _FILES.items() if (folder / name).is_file())
    return next(named, None) or next(beside, None)


def _named(settings: Any, otherwise: str) -> str:
    if not isinstance(settings, Mapping):
        return str(settings)
    if settings.get("load_in_4bit") or settings.get("load_in_8bit"):  # older ones have no quant_method
        return "bitsandbytes"
    return str(settings.get("quant_method") or otherwise)
