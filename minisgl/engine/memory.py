"""How large the KV pool is, and what else a GPU's memory goes to."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

from minisgl.engine.spec import EngineSpec
from minisgl.kvcache.pool import MHAKVCache
from minisgl.models.config import ModelConfig
from minisgl.utils.hardware import find_hardware
from minisgl.utils.logging import get_logger
from minisgl.utils.math import div_ceil

T = TypeVar("T")
logger = get_logger(__name__)


class MemoryAccount:
    """What a GPU's memory went to, by what was free before and after. On a CPU it stays empty.

    parts: bytes by what they are for, in the order in which they were taken.
    """

    def __init__(self, device: torch.device) -> None:
        self.parts: dict[str, int] = {}
        self._device = device

    @contextmanager
    def book(self, name: str) -> Iterator[None]:
        """What is taken in this block is for `name`."""
        if self._device.type != "cuda":
            yield
            return
        before = _available_bytes(self._device)
        yield
        self.parts[name] = before - _available_bytes(self._device)

    def log(self, reserved: int) -> None:
        """reserved: of what is free now, bytes that batches will need."""
        if self.parts:
            entries = self.parts | {"set aside for batches": reserved, "free": _available_bytes(self._device)}
            text = ", ".join(f"{name} {num_bytes / 2**30:.2f}" for name, num_bytes in entries.items())
            logger.info("GPU memory in GiB: %s", text)


def measure(work: Callable[[], T], device: torch.device) -> int:
    """How much memory of `device` it takes to do `work` and to keep its result, which is given up again.

    0 on a CPU, where the work is not done: its memory is not set aside.
    """
    if device.type != "cuda":
        return 0
    before = _available_bytes(device)
    result = work()
    torch.cuda.synchronize(device)
    taken = before - _available_bytes(device)
    del result
    gc.collect()
    torch.cuda.empty_cache()
    return max(taken, 0)


def make_kv_pool(spec: EngineSpec, model: ModelConfig, reserved: int = 0) -> MHAKVCache:
    """The pool, of as many pages as `spec` says or its share of the memory still free holds; logged.

    reserved: bytes that are free now and will be needed by others. On a CPU the ranks share what is free.
    Every rank holds as many pages, of its own heads, as the one with the least room. ValueError when that is not even
    one page, or more than there is memory for.
    """
    num_kv_heads = spec.tp.shard("num_kv_heads", model.num_kv_heads)
    shape = {"num_kv_heads": num_kv_heads, "num_layers": model.num_layers, "head_dim": model.head_dim}
    page_bytes = MHAKVCache.bytes_per_page(**shape, page_size=spec.page_size, dtype=spec.dtype)
    available = _available_bytes(spec.device) // _num_sharers(spec) - reserved
    num_pages = spec.tp.least(spec.num_pages or _pages_in_budget(spec, page_bytes, available))
    if num_pages * page_bytes > available:
        raise ValueError(f"{num_pages=} take {num_pages * page_bytes:,} bytes, but only {available:,} are available")
    logger.info("KV pool: %d pages of %d tokens, %.2f GiB", num_pages, spec.page_size, num_pages * page_bytes / 2**30)
    return MHAKVCache(**shape, num_pages=num_pages, page_size=spec.page_size, dtype=spec.dtype, device=spec.device)


def check_page_table_size(num_rows: int, row_len: int, device: torch.device) -> None:
    """ValueError when a page table of that many rows would not fit into a tenth of the memory that is free."""
    num_bytes, available = 4 * num_rows * row_len, _available_bytes(device)
    if num_bytes > available // 10:
        raise ValueError(
            f"max_running_req={num_rows} needs a page table of {num_bytes:,} bytes; {available:,} are available"
        )


def _pages_in_budget(spec: EngineSpec, page_bytes: int, available: int) -> int:
    """At most twice what all running requests together can use: more would only take memory away from others."""
    budget = int(available * spec.memory_ratio)
    useful = 2 * spec.max_running_req * div_ceil(spec.max_seq_len, spec.page_size)
    num_pages = min(budget // page_bytes, useful)
    if num_pages < 1:
        raise ValueError(
            f"the KV pool may take {budget:,} bytes, but one page of {spec.page_size} tokens takes {page_bytes:,};"
            " raise memory_ratio or lower page_size"
        )
    return num_pages


def _available_bytes(device: torch.device) -> int:
    """Memory that this process can still take on `device`."""
    return int(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else find_hardware().available_bytes


def _num_sharers(spec: EngineSpec) -> int:
    """Ranks that take their pools from the same memory."""
    return 1 if spec.device.type == "cuda" else spec.tp.size
