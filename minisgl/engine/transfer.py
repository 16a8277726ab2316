"""Small host values on their way to the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt
import torch

Values = Sequence[float] | npt.NDArray[Any] | torch.Tensor


def to_device(values: Values, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """The values as a tensor there. From pinned memory if that is a GPU: only then does the host not wait for it."""
    tensor = torch.as_tensor(values, dtype=dtype)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor
