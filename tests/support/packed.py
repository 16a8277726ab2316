"""What a packed layer is made of."""

from __future__ import annotations

from typing import Any

from minisgl.kernel.cpu_linear import Kind, PackedLinear


def is_grouped(packed: Any) -> bool:
    """Whether the layer's weight is still in the integers of the checkpoint."""
    return isinstance(packed, PackedLinear) and packed.kind is Kind.GROUPED
