"""Whether a token's logits depend on nothing but the tokens before it, to the last bit."""

from __future__ import annotations

import torch

from minisgl.env import ENV
from minisgl.kernel import cpu_ops


def resolve_deterministic(asked: bool | None, device: torch.device, backend: str) -> bool:
    """None: where it can be promised. ValueError that says why, if it is asked for and cannot.

    backend: of attention.
    """
    reason = _why_not(device, backend)
    if asked and reason is not None:
        raise ValueError(f"deterministic=True cannot be promised: {reason}")
    return reason is None if asked is None else asked


def _why_not(device: torch.device, backend: str) -> str | None:
    if device.type != "cpu":
        return f"kernels for {device.type} add up in another order for other batches; it takes device='cpu'"
    if not cpu_ops.in_use():
        why = "MINISGL_KERNELS=torch turns them off" if ENV.KERNELS.value == "torch" else "they are not there"
        return f"it takes the kernels in C++, and {why}"
    if backend != "cpu":
        return f"attention_backend={backend!r} adds up in another order for other batches; it takes 'cpu'"
    return None
