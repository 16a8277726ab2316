"""What a forward pass needs to know besides its tokens, passed down explicitly.

`set_global_ctx` and its kin exist for interactive use and tests; nothing in the engine reads the global one, so
several engines live in one process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch


class KVPool(Protocol):
    """The tensors that hold K and V, by slot. H heads (of this rank), D head dim, T tokens."""

    def k_cache(self, layer_id: int) -> torch.Tensor:
        """[num_pages * page_size, H, D], a view."""
        ...

    def v_cache(self, layer_id: int) -> torch.Tensor:
        """[num_pages * page_size, H, D], a view."""
        ...

    def store_kv(self, k: torch.Tensor, v: torch.Tensor, out_loc: torch.Tensor, layer_id: int) -> None:
        """Write k, v [T, H, D] to slots out_loc [T]."""
        ...


@dataclass(frozen=True)
class Context:
    """page_size: slots a page. attn_backend, attn_metadata: set by the engine for each forward pass."""

    page_size: int
    attn_backend: Any = None
    attn_metadata: Any = None


_global_ctx: Context | None = None


def set_global_ctx(ctx: Context) -> None:
    """Make `ctx` the one that `get_global_ctx` gives. Raises RuntimeError if one is set already."""
    global _global_ctx
    if _global_ctx is not None:
        raise RuntimeError("a global context is set already; call reset_global_ctx() first")
    _global_ctx = ctx


def get_global_ctx() -> Context:
    """The context set by `set_global_ctx`. Raises RuntimeError if there is none."""
    if _global_ctx is None:
        raise RuntimeError("no global context; call set_global_ctx(Context(page_size=...)) first")
    return _global_ctx


def reset_global_ctx() -> None:
    """Forget the global context; harmless when there is none."""
    global _global_ctx
    _global_ctx = None
