"""The attention interface: plan once a batch on the host, then one forward call a layer.

Shape letters: T tokens in the batch, B requests, Hq query heads, Hkv KV heads, D head dim, R page-table rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch

from minisgl.core import Batch


class BaseAttnBackend(ABC):
    """Attention over the paged KV pool. Tokens lie request by request in the order of `batch.reqs`."""

    @abstractmethod
    def plan(self, batch: Batch) -> Any:
        """Everything that the layers of one forward pass share, as a frozen value. Reads the page table."""

    @abstractmethod
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layer_id: int, meta: Any) -> torch.Tensor:
        """Store k, v [T, Hkv, D] in the pool, then attend with q [T, Hq, D]; the result is [T, Hq * D].

        The result may be overwritten by the next call with the same `meta`.
        Position p of a request sees its positions 0 .. p. Scale is 1 / sqrt(D).
        """
