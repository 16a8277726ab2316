"""Attention over the paged KV pool: backends behind one interface, chosen by name."""

from __future__ import annotations

from collections.abc import Callable

import torch

from minisgl.attention.base import BaseAttnBackend
from minisgl.attention.torch_backend import TorchAttnBackend
from minisgl.core import KVPool
from minisgl.utils.registry import Registry

ATTENTION_BACKENDS: Registry[Callable[..., BaseAttnBackend]] = Registry("attention backend")
ATTENTION_BACKENDS.register("torch")(TorchAttnBackend)


def create_attention_backend(
    name: str,
    kv_pool: KVPool,
    page_table: torch.Tensor,
    page_size: int,
    num_qo_heads: int,
    num_kv_heads: int,
    head_dim: int,
) -> BaseAttnBackend:
    """A new backend of the kind named `name` ("auto" is resolved by the caller); ValueError if there is none.

    The other arguments: see `TorchAttnBackend`.
    """
    return ATTENTION_BACKENDS[name](kv_pool, page_table, page_size, num_qo_heads, num_kv_heads, head_dim)


__all__ = ["ATTENTION_BACKENDS", "BaseAttnBackend", "TorchAttnBackend", "create_attention_backend"]
