"""The architectures we know, by Hugging Face's class name. A new one is a file beside this and an entry here.

Entries import their file when called, so that reading a config costs no model code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from minisgl.utils.registry import Registry

if TYPE_CHECKING:
    from minisgl.models.base import BaseCausalLM

MODELS: Registry[Callable[[], type[BaseCausalLM]]] = Registry("model architecture")


@MODELS.register("LlamaForCausalLM")
def _llama() -> type[BaseCausalLM]:
    from minisgl.models.llama import LlamaForCausalLM

    return LlamaForCausalLM


@MODELS.register("Qwen3ForCausalLM")
def _qwen3() -> type[BaseCausalLM]:
    from minisgl.models.qwen3 import Qwen3ForCausalLM

    return Qwen3ForCausalLM
