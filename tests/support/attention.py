"""Made-up batches for attention, and the answer by the book: per request, dense, in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from support import by_the_book
from support.table_groups import find_groups

from minisgl.attention import AttnConfig, AttnForm, create_attention_backend
from minisgl.core import Batch, PageTableUpdate, Req, SamplingParams
from minisgl.engine.staging import make_staging
from minisgl.kernel import store_cache
from minisgl.kvcache.pool import MHAKVCache

NUM_LAYERS = 2


@dataclass(frozen=True)
class Row:
    """cached tokens of which the first `shared` (whole pages) lie in the pages of prefix number `prefix`."""

    cached: int
    extend: int
    shared: int = 0
    prefix: int = 0


@dataclass(frozen=True)
class Shape:
    page_size: int = 4
    num_kv_heads: int = 2
    group: int = 3
    head_dim: int = 16
    dtype: torch.dtype = torch.float32
    device: str = "cpu"

    @property
    def num_qo_heads(self) -> int:
        return self.num_kv_heads * self.group


class AttentionCase:
    """A pool full of NaN but for the rows' cached tokens, their page table, and q, k, v of their new tokens.

    scattered: pages are dealt in random order; else one after the other. form: with a window for each of NUM_LAYERS.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        shape: Shape,
        scattered: bool = False,
        seed: int = 0,
        form: AttnForm | None = None,
        has_sinks: bool = False,
    ) -> None:
        self.rows, self.shape = rows, shape
        plain = AttnForm(scale=shape.head_dim**-0.5, windows=(0,) * NUM_LAYERS)
        self.form = replace(form or plain, sinks=has_sinks)
        self._rng = np.random.default_rng(seed)
        generator = torch.Generator().manual_seed(seed)
        size = shape.page_size
        lengths = [row.cached + row.extend for row in rows]
        num_pages = sum(-(-n // size) for n in lengths) + 3
        order = self._rng.permutation(num_pages) if scattered else np.arange(1, num_pages)
        self.table = self._deal(iter(order.tolist()), lengths)
        self.pool = MHAKVCache(
            shape.num_kv_heads, NUM_LAYERS, shape.head_dim, num_pages, size, shape.dtype, torch.device(shape.device)
        )
        self._kv = torch.randn(2, num_pages * size, shape.num_kv_heads, shape.head_dim, generator=generator)
        self._kv = self._kv.to(shape.device, shape.dtype)
        # One fused projection, as a model makes it: q, k and v are views with the row stride of all three.
        heads = shape.num_qo_heads + 2 * shape.num_kv_heads
        qkv = torch.randn(self.num_tokens, heads, shape.head_dim, generator=generator).to(shape.device, shape.dtype)
        self.q, self.k, self.v = qkv.split([shape.num_qo_heads, shape.num_kv_heads, shape.num_kv_heads], dim=1)
        self.sinks = torch.randn(shape.num_qo_heads, generator=generator).to(shape.device) if has_sinks else None
        self._fill_pool()

    @property
    def num_tokens(self) -> int:
        return sum(row.extend for row in self.rows)

    def batch(self) -> Batch:
        none = np.empty(0, np.int32)
        reqs = tuple(self.req(uid, row) for uid, row in enumerate(self.rows))
        num_pages = np.array([row.cached // self.shape.page_size for row in self.rows])
        groups = find_groups(self.table[[req.table_idx for req in reqs]], num_pages, self.shape.page_size)
        return Batch(reqs=reqs, page_table_update=PageTableUpdate(none, none, none), step=0, groups=groups)

    def config(self) -> AttnConfig:
        shape = self.shape
        return AttnConfig(
            kv_pool=self.pool,
            page_table=torch.from_numpy(self.table).to(shape.device),
            host_table=self.table,
            page_size=shape.page_size,
            num_qo_heads=shape.num_qo_heads,
            num_kv_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            form=self.form,
            max_running_req=len(self.rows),
        )

    def backend(self, name: str = "torch"):
        return create_attention_backend(name, self.config())

    def run(self, layer_id: int = 0, name: str = "torch") -> torch.Tensor:
        """[T, Hq * D] from the backend."""
        backend, staging = self.backend(name), make_staging(torch.device(self.shape.device))
        staging.begin()
        meta = backend.plan(self.batch(), staging)
        staging.send()
        self.store_new(layer_id)
        return backend.forward(self.q, self.k, self.v, layer_id, meta, self.sinks)

    def store_new(self, layer_id: int) -> None:
        """K and V of the new tokens go into the pool."""
        slots = [self.slots(uid, row.cached, row.cached + row.extend) for uid, row in enumerate(self.rows)]
        store_cache(self.pool.k_cache(layer_id), self.pool.v_cache(layer_id), torch.cat(slots).int(), self.k, self.v)

    def expected(self, layer_id: int = 0) -> torch.Tensor:
        """[T, Hq * D] float64 by the book."""
        sinks = None if self.sinks is None else self.sinks.double()
        parts, first = [], 0
        for uid, row in enumerate(self.rows):
            new = slice(first, first + row.extend)
            slots = self.slots(uid, 0, row.cached)
            k, v = (torch.cat([old[slots], x[new]]).double() for old, x in zip(self._kv, (self.k, self.v), strict=True))
            sees = by_the_book.seen(row.cached, row.extend, self.form.windows[layer_id])
            parts.append(by_the_book.attend(self.q[new].double(), k, v, sees, self.form, sinks))
            first += row.extend
        return torch.cat(parts)

    def slots(self, uid: int, begin: int, end: int) -> torch.Tensor:
        positions = np.arange(begin, end)
        size = self.shape.page_size
        slots = self.table[self.table_idx(uid), positions // size].astype(np.int64) * size + positions % size
        return torch.from_numpy(slots).to(self.shape.device)

    def table_idx(self, uid: int) -> int:
        """Rows of the table in reverse, so that they are not the rows of the batch."""
        return len(self.rows) - 1 - uid

    def _deal(self, pages, lengths: Sequence[int]) -> np.ndarray:
        """The page table: prefixes get their pages once, all else is a row's own; unused cells are out of range."""
        size = self.shape.page_size
        table = np.full((len(lengths), max(lengths) // size + 2), 1 << 30, np.int32)
        longest: dict[int, int] = {}
        for row in self.rows:
            longest[row.prefix] = max(longest.get(row.prefix, 0), row.shared // size)
        prefix_pages = {prefix: [next(pages) for _ in range(n)] for prefix, n in longest.items()}
        for uid, (row, length) in enumerate(zip(self.rows, lengths, strict=True)):
            shared = prefix_pages[row.prefix][: row.shared // size]
            own = [next(pages) for _ in range(-(-length // size) - len(shared))]
            table[self.table_idx(uid), : len(shared) + len(own)] = shared + own
        return table

    def _fill_pool(self) -> None:
        for layer_id in range(NUM_LAYERS):
            pool = self.pool.k_cache(layer_id), self.pool.v_cache(layer_id)
            for cache in pool:
                cache.fill_(float("nan"))
            for uid, row in enumerate(self.rows):
                slots = self.slots(uid, 0, row.cached)
                store_cache(*pool, slots.int(), self._kv[0][slots], self._kv[1][slots])

    def req(self, uid: int, row: Row) -> Req:
        """The request in row `uid` of the case, cached and extended as `row` says."""
        length = row.cached + row.extend
        return Req(
            uid=uid,
            table_idx=self.table_idx(uid),
            cached_len=row.cached,
            device_len=length,
            max_device_len=length + 1,
            prompt_len=length,
            input_ids=np.zeros(length, np.int32),
            sampling_params=SamplingParams(),
        )


def assert_close(got: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    """Within 1e-5 of the largest entry in float32; in bfloat16, which rounds to 2**-9, within 1e-2 of it."""
    error = (got.double() - expected).abs().max() / expected.abs().max()
    assert error <= (1e-5 if dtype == torch.float32 else 1e-2), f"relative error {error:.1e}"
