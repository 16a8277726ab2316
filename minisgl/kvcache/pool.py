"""The KV pool: one buffer that holds the keys and values of every layer, by slot.

Shape letters: L layers, P pages, S page size, H KV heads of this rank, D head dim.
"""

from __future__ import annotations

import torch


class MHAKVCache:
    """K and V of multi-head (or grouped-query) attention: a buffer [2, L, P, S, H, D], K first.

    The memory is reserved, not written: a page of it is touched when its first token is stored, and holds anything
    before that. Nothing here knows which slot belongs to whom; that is the page table's business.
    """

    def __init__(
        self,
        num_kv_heads: int,
        num_layers: int,
        head_dim: int,
        num_pages: int,
        page_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        """num_kv_heads: of this rank. ValueError unless num_pages and page_size are at least 1."""
        for name, value in (("num_pages", num_pages), ("page_size", page_size)):
            if value < 1:
                raise ValueError(f"{name}={value} must be at least 1")
        shape = (2, num_layers, num_pages, page_size, num_kv_heads, head_dim)
        self._buffer = torch.empty(shape, dtype=dtype, device=device)
        # One view a layer, made once: making one takes longer than a short layer's store.
        by_slot = self._buffer.view(2, num_layers, num_pages * page_size, num_kv_heads, head_dim)
        self._k_caches: tuple[torch.Tensor, ...] = by_slot[0].unbind()
        self._v_caches: tuple[torch.Tensor, ...] = by_slot[1].unbind()
        self.num_pages = num_pages
        self.page_size = page_size

    @staticmethod
    def bytes_per_page(num_kv_heads: int, num_layers: int, head_dim: int, page_size: int, dtype: torch.dtype) -> int:
        """Bytes of K and V that one page takes in all layers together."""
        return 2 * num_layers * page_size * num_kv_heads * head_dim * dtype.itemsize

    @property
    def dtype(self) -> torch.dtype:
        return self._buffer.dtype

    @property
    def device(self) -> torch.device:
        return self._buffer.device

    def k_cache(self, layer_id: int) -> torch.Tensor:
        """[P * S, H, D]: the keys of one layer by slot; a view."""
        return self._k_caches[layer_id]

    def v_cache(self, layer_id: int) -> torch.Tensor:
        """[P * S, H, D]: the values of one layer by slot; a view."""
        return self._v_caches[layer_id]
