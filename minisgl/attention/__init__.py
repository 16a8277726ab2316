"""Attention over the paged KV pool: backends behind one interface, chosen by name."""

from __future__ import annotations

from collections.abc import Callable

from minisgl.attention.base import AttnConfig, AttnForm, BaseAttnBackend
from minisgl.attention.cpu_backend import CpuAttnBackend
from minisgl.attention.flashinfer_backend import FlashInferAttnBackend
from minisgl.attention.torch_backend import TorchAttnBackend
from minisgl.attention.triton_backend import TritonAttnBackend
from minisgl.utils.registry import Registry

ATTENTION_BACKENDS: Registry[Callable[[AttnConfig], BaseAttnBackend]] = Registry("attention backend")
ATTENTION_BACKENDS.register("torch")(TorchAttnBackend)
ATTENTION_BACKENDS.register("cpu")(CpuAttnBackend)
ATTENTION_BACKENDS.register("triton")(TritonAttnBackend)
ATTENTION_BACKENDS.register("flashinfer")(FlashInferAttnBackend)


def create_attention_backend(name: str, config: AttnConfig) -> BaseAttnBackend:
    """A new backend of the kind named `name` ("auto" is resolved by the caller); ValueError if there is none."""
    return ATTENTION_BACKENDS[name](config)


__all__ = [
    "ATTENTION_BACKENDS",
    "AttnConfig",
    "AttnForm",
    "BaseAttnBackend",
    "TorchAttnBackend",
    "create_attention_backend",
]
