"""The calls of FlashInfer (0.6.13 and later) that are used here, and all that is to be known about them.

Planning takes lengths on the host. It writes its plan into a pinned buffer of the wrapper's and copies it to the
device from there: a copy of its own, on the current stream, besides the one of the step. The next plan of the same
wrapper must not write there before the copy has been made, so it waits for it; by then the step before is over, for its
tokens are on the host, so there is next to nothing to wait for.

Shape letters: N runs of pages, T query tokens, Hq query heads, Hkv KV heads, D head dim, P pages, S page size.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from minisgl.attention.base import AttnConfig
from minisgl.utils.math import div_ceil

KV = tuple[torch.Tensor, torch.Tensor]
"""Keys and values of one layer, each [P, S, Hkv, D]."""

DTYPES = (torch.bfloat16, torch.float16)
HEAD_DIMS = (64, 128, 256)
MIN_CAPABILITY = (8, 0)
TAKE_ANOTHER = "take 'auto' or 'triton'"
# Of each wrapper that a graph has: a plan for a batch takes a few ten thousand bytes.
GRAPH_INT_WORKSPACE = 1 << 20
MIN_FLOAT_WORKSPACE = 128 << 20
TILES = (16, 64, 128)  # rows of a tile: the least that hold a decode's group, or the most


def check_installed() -> None:
    """ValueError if the package is missing. Imports nothing."""
    if importlib.util.find_spec("flashinfer") is None:
        raise ValueError(
            "attention_backend='flashinfer' needs the package flashinfer-python: pip install 'minisgl[gpu]'"
        )


@cache
def library() -> Any:
    """The package; ValueError if it is not installed."""
    check_installed()
    return importlib.import_module("flashinfer")


@dataclass(frozen=True)
class CallShape:
    """What is the same for all calls. scale: of q . k."""

    page_size: int
    num_qo_heads: int
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype
    scale: float

    @property
    def group(self) -> int:
        """Query heads that share a KV head."""
        return self.num_qo_heads // self.num_kv_heads

    def float_workspace_bytes(self, max_rows: int, num_sms: int) -> int:
        """What any call needs for partial results of tiles: those that a graph of decodes reckons with, or two of
        prompts a multiprocessor."""
        tile = next((rows for rows in TILES if rows >= self.group), TILES[-1])
        decode_rows = (div_ceil(max_rows * self.group, tile) + max_rows) * tile * self.num_qo_heads
        prefill_rows = 2 * num_sms * TILES[-1] * self.group
        return max(MIN_FLOAT_WORKSPACE, max(decode_rows, prefill_rows) * (self.head_dim + 1) * 4 + (1 << 20))


def check_supported(dtype: torch.dtype, head_dim: int, windows: Sequence[int], softcap: float, sinks: bool) -> None:
    """ValueError if FlashInfer has no kernel for such numbers or heads, or is not called for such layers here."""
    if dtype not in DTYPES:
        raise ValueError(f"attention_backend='flashinfer' takes bfloat16 and float16, not dtype={dtype}")
    if head_dim not in HEAD_DIMS:
        raise ValueError(f"attention_backend='flashinfer' takes head_dim 64, 128 and 256, not {head_dim}")
    if any(windows):
        raise ValueError(
            f"attention_backend='flashinfer' serves no model with sliding windows, here of {max(windows)} tokens: "
            f"{TAKE_ANOTHER}"
        )
    if softcap:
        raise ValueError(
            f"attention_backend='flashinfer' serves no model with soft-capped scores, here at {softcap:g}: "
            f"{TAKE_ANOTHER}"
        )
    if sinks:
        raise ValueError(f"attention_backend='flashinfer' serves no model with attention sinks: {TAKE_ANOTHER}")


def checked_shape(config: AttnConfig) -> CallShape:
    """Errors of `check_supported`."""
    dtype = config.kv_pool.k_cache(0).dtype
    form = config.form
    check_supported(dtype, config.head_dim, form.windows, form.softcap, form.sinks)
    heads = (config.num_qo_heads, config.num_kv_heads, config.head_dim)
    return CallShape(config.page_size, *heads, dtype, form.scale)


def capability(device: torch.device) -> tuple[int, int]:
    """Of the GPU's kernels: (9, 0) is Hopper. ValueError if it is none, or too old."""
    if device.type != "cuda":
        raise ValueError(f"attention_backend='flashinfer' needs an NVIDIA GPU, not device={str(device)!r}")
    found = torch.cuda.get_device_capability(device)
    if found < MIN_CAPABILITY:
        raise ValueError(f"attention_backend='flashinfer' needs compute capability 8.0 or more, not {found}")
    return found


def num_sms(device: torch.device) -> int:
    """How many programs of FA3 run at a time."""
    return torch.cuda.get_device_properties(device).multi_processor_count


@dataclass(frozen=True, slots=True, eq=False)
class PagedKV:
    """Runs of pages. indptr [N + 1]: where each begins in `pages`; last_lens [N]: tokens in its last page. All int32.

    Both are on the host and, once the step is sent, on the device; `pages` is on the device and filled there.
    """

    indptr_host: torch.Tensor
    last_lens_host: torch.Tensor
    indptr: torch.Tensor
    last_lens: torch.Tensor
    pages: torch.Tensor

    def part(self, begin: int, end: int) -> PagedKV:
        """Runs begin .. end of them, of the same list of pages."""
        return PagedKV(
            *(self.indptr_host[begin : end + 1], self.last_lens_host[begin:end]),
            *(self.indptr[begin : end + 1], self.last_lens[begin:end], self.pages),
        )


class _PinnedPlan:
    """Keeps one wrapper's pinned buffer until it has been copied."""

    def __init__(self, device: torch.device) -> None:
        self._is_pinned = device.type == "cuda"
        self._copied: torch.cuda.Event | None = None

    def wait(self) -> None:
        if self._copied is not None:
            self._copied.synchronize()

    def sent(self) -> None:
        if self._is_pinned:
            self._copied = torch.cuda.current_stream().record_event()


class DecodeCall:
    """One query a run, on tensor cores. static: for a CUDA graph, the runs' tensors, whose content alone changes."""

    def __init__(self, shape: CallShape, workspace: torch.Tensor, static: PagedKV | None = None) -> None:
        self._shape = shape
        self._is_static = static is not None
        self._planned = False
        self._pinned = _PinnedPlan(workspace.device)
        buffers: dict[str, Any] = {}
        if static is not None:
            buffers = {
                "use_cuda_graph": True,
                "paged_kv_indptr_buffer": static.indptr,
                "paged_kv_indices_buffer": static.pages,
                "paged_kv_last_page_len_buffer": static.last_lens,
            }
        self._wrapper = library().BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD", use_tensor_cores=True, **buffers)

    def share_int_workspace(self, workspace: torch.Tensor, int_workspace: torch.Tensor) -> None:
        """Put the plan on the device where others put theirs: each is sent anew before it is used."""
        self._wrapper.reset_workspace_buffer(workspace, int_workspace)

    def plan(self, kv: PagedKV) -> None:
        """Say what the next runs read. Waits for nothing but its own last copy."""
        self._pinned.wait()
        shape = self._shape
        heads = (shape.num_qo_heads, shape.num_kv_heads, shape.head_dim, shape.page_size)
        kinds = {"q_data_type": shape.dtype, "kv_data_type": shape.dtype, "sm_scale": shape.scale}
        pages = kv.pages[:0] if self._is_static else kv.pages  # static ones lie where they are read
        if self._planned:
            # This plan copies no lengths: they are on the device already. It reads the last ones on the host, and would
            # keep them from there.
            library().fast_decode_plan(
                *(self._wrapper, kv.indptr, pages, kv.last_lens_host, *heads),
                global_override_indptr_cpu=kv.indptr_host,
                **kinds,
            )
            if not self._is_static:
                self._wrapper._paged_kv_last_page_len_buf = kv.last_lens
        else:
            self._wrapper.plan(kv.indptr_host, pages, kv.last_lens_host, *heads, **kinds)
            self._planned = True
        self._pinned.sent()

    def run(self, q: torch.Tensor, kv: KV, out: torch.Tensor, lse: torch.Tensor | None = None) -> None:
        """q [N, Hq, D] to out [N, Hq, D] and, if given, lse [N, Hq] float32, of base 2."""
        self._wrapper.run(q, kv, out=out, lse=lse, return_lse=lse is not None)


class PrefillCall:
    """Any number of queries a run. backend: "fa2" or "fa3"."""

    def __init__(self, shape: CallShape, workspace: torch.Tensor, backend: str) -> None:
        self._shape = shape
        self._pinned = _PinnedPlan(workspace.device)
        self._wrapper = library().BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD", backend=backend)

    def plan(self, kv: PagedKV, q_indptr: torch.Tensor, causal: bool) -> None:
        """q_indptr: [N + 1] int32 on the host. causal: the last query of a run sees all its tokens, the one before it
        all but one; else every query sees all."""
        self._pinned.wait()
        shape = self._shape
        self._wrapper.plan(
            *(q_indptr, kv.indptr_host, kv.pages, kv.last_lens_host),
            *(shape.num_qo_heads, shape.num_kv_heads, shape.head_dim, shape.page_size),
            causal=causal,
            q_data_type=shape.dtype,
            kv_data_type=shape.dtype,
            sm_scale=shape.scale,
        )
        self._pinned.sent()

    def run(self, q: torch.Tensor, kv: KV, out: torch.Tensor, lse: torch.Tensor | None = None) -> None:
        """q [T, Hq, D] to out [T, Hq, D] and, if given, lse [T, Hq] float32, of base 2."""
        self._wrapper.run(q, kv, out=out, lse=lse, return_lse=lse is not None)
