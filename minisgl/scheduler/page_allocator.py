"""The free pages of the KV pool: a stack of page numbers on the host."""

from __future__ import annotations

import numpy as np

from minisgl.utils.arrays import Int32Array


class PageAllocator:
    """Hands out page numbers, most recently freed first; a fresh pool gives 0, 1, 2, ... so runs are contiguous."""

    def __init__(self, num_pages: int) -> None:
        self._stack = np.arange(num_pages - 1, -1, -1, dtype=np.int32)
        self.num_pages = num_pages
        self.num_free = num_pages

    def allocate(self, count: int) -> Int32Array:
        """[count] page numbers; the caller has made sure that they are there."""
        assert 0 <= count <= self.num_free, f"{count} pages wanted, {self.num_free} free"
        top = self.num_free
        self.num_free = top - count
        return self._stack[self.num_free : top][::-1].copy()

    def free(self, pages: Int32Array) -> None:
        """Take pages back; the next `allocate` gives them in the order that they have here."""
        top = self.num_free + len(pages)
        assert top <= self.num_pages, f"{len(pages)} pages freed, {self.num_free} of {self.num_pages} free already"
        self._stack[self.num_free : top] = pages[::-1]
        self.num_free = top

    def free_pages(self) -> Int32Array:
        """Every free page, for accounting."""
        return self._stack[: self.num_free].copy()
