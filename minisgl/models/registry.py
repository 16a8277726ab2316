"""The architectures we know, by Hugging Face's class name. A new one is a file beside this and a line here.

Entries import their file when called, so that listing the names costs no model code.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, cast

from minisgl.utils.registry import Registry

if TYPE_CHECKING:
    from minisgl.models.base import BaseCausalLM

MODELS: Registry[Callable[[], type[BaseCausalLM]]] = Registry("model architecture")

# The file is called what transformers calls the model_type, but for these.
_MODEL_TYPES = {"Gemma3ForCausalLM": "gemma3_text"}
_FILES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen2MoeForCausalLM": "qwen2_moe",
    "Qwen3MoeForCausalLM": "qwen3_moe",
    "MixtralForCausalLM": "mixtral",
    "SmolLM3ForCausalLM": "smollm3",
    "Phi3ForCausalLM": "phi3",
    "Olmo2ForCausalLM": "olmo2",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3",
    "Gemma3ForConditionalGeneration": "gemma3",
    "Olmo3ForCausalLM": "olmo3",
    "GraniteForCausalLM": "granite",
    "GptOssForCausalLM": "gpt_oss",
}


def model_type_of(architecture: str) -> str:
    """By which transformers picks a class, where we go by the name of the class."""
    return _MODEL_TYPES.get(architecture, _FILES[architecture])


def architecture_of_type(model_type: str) -> str | None:
    """The class that transformers makes of a config with this model_type, if it is one of ours."""
    return next((name for name in _FILES if model_type_of(name) == model_type), None)


def _load(file: str, name: str) -> type[BaseCausalLM]:
    return cast("type[BaseCausalLM]", getattr(import_module(f"minisgl.models.{file}"), name))


for _name, _file in _FILES.items():
    MODELS.register(_name)(partial(_load, _file, _name))
