"""The few calls of FlashInfer that are used, in plain torch and as strict: what is planned is what is run.

Like the package: log-sum-exps are of base 2, indptr and indices are int32, lengths are planned on the host, buffers
for a CUDA graph keep their addresses, and fast_decode_plan copies nothing.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import torch

LOG2_E = math.log2(math.e)


class _Wrapper:
    """What both have in common: runs of pages, as planned on the host and as they lie on the device."""

    def __init__(self, workspace: torch.Tensor, kv_layout: str) -> None:
        assert workspace.dtype == torch.uint8
        assert kv_layout == "NHD"
        self.planned: list[int] = []
        self.num_plans = 0

    def _keep(self, indptr: torch.Tensor, pages: torch.Tensor, last_lens: torch.Tensor) -> None:
        assert {x.dtype for x in (indptr, pages, last_lens)} == {torch.int32}
        assert len(indptr) == len(last_lens) + 1
        self.indptr, self.pages, self._paged_kv_last_page_len_buf = indptr, pages, last_lens

    def _note_plan(self, indptr_host: torch.Tensor, heads: tuple[int, ...], kinds: dict[str, Any]) -> None:
        assert indptr_host.device.type == "cpu"
        assert kinds["q_data_type"] == kinds["kv_data_type"] == torch.bfloat16
        self.scale: float = kinds["sm_scale"]
        self.planned = indptr_host.tolist()
        self.num_qo_heads, self.num_kv_heads, self.head_dim, self.page_size = heads
        self.num_plans += 1

    def _read(self, kv: tuple[torch.Tensor, torch.Tensor], run: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [N, Hq, D] of one run, float64."""
        assert self.indptr.tolist() == self.planned, "what is on the device is not what was planned"
        begin, end = self.planned[run : run + 2]
        length = (end - begin - 1) * self.page_size + int(self._paged_kv_last_page_len_buf[run])
        assert 1 <= int(self._paged_kv_last_page_len_buf[run]) <= self.page_size
        pages = self.pages[begin:end].long()
        assert kv[0].shape[1:] == (self.page_size, self.num_kv_heads, self.head_dim)
        group = self.num_qo_heads // self.num_kv_heads
        k, v = (x[pages].flatten(0, 1)[:length].double().repeat_interleave(group, dim=1) for x in kv)
        return k, v


class BatchDecodeWithPagedKVCacheWrapper(_Wrapper):
    def __init__(
        self,
        workspace: torch.Tensor,
        kv_layout: str,
        use_cuda_graph: bool = False,
        use_tensor_cores: bool = False,
        paged_kv_indptr_buffer: torch.Tensor | None = None,
        paged_kv_indices_buffer: torch.Tensor | None = None,
        paged_kv_last_page_len_buffer: torch.Tensor | None = None,
    ) -> None:
        super().__init__(workspace, kv_layout)
        self.is_static, self.use_tensor_cores = use_cuda_graph, use_tensor_cores
        if use_cuda_graph:
            self._keep(paged_kv_indptr_buffer, paged_kv_indices_buffer, paged_kv_last_page_len_buffer)

    def reset_workspace_buffer(self, workspace: torch.Tensor, int_workspace: torch.Tensor) -> None:
        assert workspace.dtype == int_workspace.dtype == torch.uint8

    def plan(self, indptr: torch.Tensor, pages: torch.Tensor, last_lens: torch.Tensor, *heads: int, **kinds: Any):
        self._check(last_lens, pages, heads)
        if self.is_static:
            self.indptr.copy_(indptr)
            self.pages[: len(pages)].copy_(pages)
            self._paged_kv_last_page_len_buf.copy_(last_lens)
        else:
            self._keep(indptr, pages, last_lens)
        self._note_plan(indptr, heads, kinds)

    def _check(self, last_lens: torch.Tensor, pages: torch.Tensor, heads: tuple[int, ...]) -> None:
        assert self.use_tensor_cores, "kernels on CUDA cores are for some groups of heads only"
        if self.is_static:
            assert len(last_lens) == len(self._paged_kv_last_page_len_buf), "the batch size should be fixed"
            assert len(pages) <= len(self.pages)

    def run(self, q: torch.Tensor, kv: Any, out: torch.Tensor, lse: torch.Tensor | None, return_lse: bool) -> None:
        assert q.shape == out.shape == (len(self._paged_kv_last_page_len_buf), self.num_qo_heads, self.head_dim)
        assert out.is_contiguous()
        for row in range(len(q)):
            to = out[row : row + 1], lse[row : row + 1] if return_lse else None
            _attend(q[row : row + 1].double() * self.scale, *self._read(kv, row), *to)


def fast_decode_plan(
    wrapper: BatchDecodeWithPagedKVCacheWrapper,
    indptr: torch.Tensor,
    pages: torch.Tensor,
    last_lens: torch.Tensor,
    *heads: int,
    global_override_indptr_cpu: torch.Tensor,
    **kinds: Any,
) -> None:
    assert wrapper.num_plans > 0, "the module is chosen by the first plan"
    wrapper._check(last_lens, pages, heads)
    if not wrapper.is_static:
        wrapper._keep(indptr, pages, torch.zeros_like(last_lens))  # those of the host, which no kernel can read
    wrapper._note_plan(global_override_indptr_cpu, heads, kinds)


class BatchPrefillWithPagedKVCacheWrapper(_Wrapper):
    def __init__(self, workspace: torch.Tensor, kv_layout: str, backend: str) -> None:
        super().__init__(workspace, kv_layout)
        assert backend in ("fa2", "fa3")
        created.append(backend)

    def plan(
        self,
        q_indptr: torch.Tensor,
        indptr: torch.Tensor,
        pages: torch.Tensor,
        last_lens: torch.Tensor,
        *heads: int,
        causal: bool,
        **kinds: Any,
    ) -> None:
        assert len(q_indptr) == len(indptr)
        self.q_indptr, self.causal = q_indptr.tolist(), causal
        self._keep(indptr, pages, last_lens)
        self._note_plan(indptr, heads, kinds)

    def run(self, q: torch.Tensor, kv: Any, out: torch.Tensor, lse: torch.Tensor | None, return_lse: bool) -> None:
        assert len(q) == self.q_indptr[-1], "q.shape[0] does not match qo_indptr[-1]"
        assert out.shape == q.shape
        assert out.is_contiguous()
        for run, (begin, end) in enumerate(zip(self.q_indptr[:-1], self.q_indptr[1:], strict=True)):
            k, v = self._read(kv, run)
            to = out[begin:end], lse[begin:end] if return_lse else None
            _attend(q[begin:end].double() * self.scale, k, v, *to, self.causal)


def _attend(q: Any, k: Any, v: Any, out: torch.Tensor, lse: torch.Tensor | None, causal: bool = False) -> None:
    """q, scaled, and out [Q, Hq, D], k, v [N, Hq, D], lse [Q, Hq]. causal: aligned at the end."""
    scores = torch.einsum("qhd,khd->qhk", q, k)
    if causal:
        seen = torch.ones(len(q), len(k), dtype=torch.bool).tril(len(k) - len(q))
        scores = scores.masked_fill(~seen[:, None], float("-inf"))
    out.copy_(torch.einsum("qhk,khd->qhd", scores.softmax(-1), v))
    if lse is not None:
        assert lse.dtype == torch.float32
        lse.copy_(scores.logsumexp(-1) * LOG2_E)


created: list[str] = []
"""The backends of the prefill wrappers made so far."""


def fake_flashinfer() -> SimpleNamespace:
    """What `import flashinfer` would give."""
    created.clear()
    names = (BatchDecodeWithPagedKVCacheWrapper, BatchPrefillWithPagedKVCacheWrapper, fast_decode_plan)
    return SimpleNamespace(**{thing.__name__: thing for thing in names})
