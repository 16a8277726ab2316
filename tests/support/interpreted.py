"""Triton's interpreter with NumPy 2.4, which makes no int of an array of one element."""

from __future__ import annotations

from typing import Any

from triton.runtime import interpreter


def allow_loaded_bounds() -> None:
    """Let scalars that a kernel loads be bounds of its loops. To be called once."""
    patch = interpreter._patch_lang_tensor

    def patch_with_index(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patch_with_index
