"""What a forward pass needs to know besides its tokens, passed down explicitly.

`set_global_ctx` and its kin exist for interactive use and tests; nothing in the engine reads the global one, so
several engines live in one process.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch


class KVPool(Protocol):
    """The tensors that hold K and V, by slot. H heads (of this rank), D head dim."""

    def k_cache(self, layer_id: int) -> torch.Tensor:
        """[num_pages * page_size, H, D], a view."""
        ...

    def v_cache(self, layer_id: int) -> torch.Tensor:
        """[num_pages * page_size, H, D], a view."""
        ...


class Staging(Protocol):
    """Host values on their way to the device, where all of one step arrive by one copy."""

    def add(self, values: npt.NDArray[Any], capacity: int | None = None, fill: float = 0) -> torch.Tensor:
        """Where `values` [N] will lie on the device once the step is sent: a tensor [capacity or N] of their dtype.

        With a capacity, the address depends only on the capacities that were asked for before in this step, so that a
        CUDA graph may keep it; what lies beyond N is `fill`.
        """
        ...


@dataclass(frozen=True)
class Context:
    """page_size: slots a page. The rest is set by the engine for each forward pass.

    out_loc: [T] int32 slots where the new tokens' K and V go; -1: nowhere, for padding.
    """

    page_size: int
    kv_pool: Any = None
    attn_backend: Any = None
    attn_metadata: Any = None
    out_loc: Any = None

    def with_step(self, attn_metadata: Any, out_loc: torch.Tensor) -> Context:
        """The same for one forward pass."""
        return replace(self, attn_metadata=attn_metadata, out_loc=out_loc)


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
