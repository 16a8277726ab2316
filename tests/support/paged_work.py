"""Paged keys and values of made-up rows, for attention kernels and their reference: unused slots hold NaN."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from minisgl.kernel.attention_work import Partials, new_partials


class PagedRows:
    """Rows of `lens` tokens in scattered pages, the first `shared` of which (whole pages) are those of row 0.

    q [B, Hq, D] is a view of wider rows. table_idxs: the rows of the page table. scale: of q . k.
    """

    def __init__(
        self,
        lens: Sequence[int],
        *,
        group: int = 3,
        num_kv_heads: int = 2,
        head_dim: int = 16,
        page_size: int = 4,
        shared: int = 0,
        num_queries: int | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> None:
        rng, generator = np.random.default_rng(0), torch.Generator().manual_seed(0)
        self.page_size, self.num_qo_heads, self.num_kv_heads = page_size, group * num_kv_heads, num_kv_heads
        self.scale = head_dim**-0.5
        width, num_shared = max(lens) // page_size + 2, shared // page_size
        table = rng.permutation(len(lens) * width).astype(np.int32).reshape(len(lens), width)
        self.table_idxs = np.arange(len(lens))[::-1].copy()
        table[:, :num_shared] = table[self.table_idxs[0], :num_shared]
        kv = torch.full((2, len(lens) * width * page_size, num_kv_heads, head_dim), float("nan"))
        for row, length in zip(self.table_idxs, lens, strict=True):
            positions = np.arange(length)
            slots = table[row, positions // page_size].astype(np.int64) * page_size + positions % page_size
            kv[:, slots] = torch.randn(2, length, num_kv_heads, head_dim, generator=generator)
        q = torch.randn(num_queries or len(lens), self.num_qo_heads + 2, head_dim, generator=generator)
        self.q = q.to(device, dtype)[:, : self.num_qo_heads]
        self.k_cache, self.v_cache = kv.to(device, dtype)
        self.page_table = torch.from_numpy(table).to(device)

    @property
    def cache(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
        return self.k_cache, self.v_cache, self.page_table, self.page_size

    def make_sinks(self) -> torch.Tensor:
        """[Hq], some of them larger than any score."""
        generator = torch.Generator().manual_seed(1)
        return (4 * torch.randn(self.num_qo_heads, generator=generator)).to(self.q)

    def send(self, values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self.q.device)

    def outputs(self, num_partials: int) -> tuple[torch.Tensor, Partials]:
        """Where results go: all NaN."""
        num_queries, num_heads, head_dim = self.q.shape
        out = self.q.new_full((num_queries, num_heads * head_dim), float("nan"))
        partials = new_partials(num_partials, num_queries, num_heads, self.num_kv_heads, head_dim, self.q.device)
        partials.o.fill_(float("nan"))
        partials.lse.fill_(float("nan"))
        return out, partials


def assert_same(got: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    """NaN, which is what nobody wrote, where it is expected; the rest up to two roundings of `dtype`."""
    unit = {torch.float32: 1e-5, torch.float16: 2**-9, torch.bfloat16: 2**-6}[dtype]
    torch.testing.assert_close(got.float(), expected.float(), rtol=unit, atol=unit, equal_nan=True)


Run = Callable[[torch.Tensor, Partials], None]


def assert_joins_as(case: PagedRows, num_partials: int, kernel: Run, reference: Run) -> None:
    """Both write the same to the same places, and leave nobody's arrival behind."""
    results = []
    for run in (kernel, reference):
        out, partials = case.outputs(num_partials)
        run(out, partials)
        results.append((out, partials))
    (out, partials), (expected, expected_partials) = results
    dtype = case.q.dtype
    assert_same(out, expected, dtype)
    written = ~expected_partials.lse.isnan()
    assert_same(partials.o[written], expected_partials.o[written], dtype)
    assert_same(partials.lse[written], expected_partials.lse[written], dtype)
    assert not partials.arrivals.any()
