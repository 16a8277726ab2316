"""Where a test of the whole engine runs: on the CPU always, and on a GPU with each attention backend when asked to."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from minisgl import LLM
from minisgl.attention import ATTENTION_BACKENDS, cpu_backend, flashinfer_backend, plan, triton_backend
from minisgl.attention.shared_prefix import GroupCost
from minisgl.core import BatchOutput, ForwardInput
from minisgl.engine.spec import resolve_backend

GPU_BACKENDS = ("torch", "triton", "flashinfer")
TARGETS = [
    ("cpu", resolve_backend("auto", on_gpu=False)),
    *(pytest.param("cuda", name, marks=pytest.mark.gpu) for name in ("torch", "triton")),
]
"""device, attention backend: those that compute in float32"""


def require_backend(name: str, dtype: str = "bfloat16", head_dim: int = 128, windows: bool = False) -> None:
    """Skip the test where there is no such backend, or FlashInfer would have to be compiled for minutes."""
    if name not in ATTENTION_BACKENDS:
        pytest.skip(f"no attention backend {name!r}")
    has_kernels = dtype == "bfloat16" and head_dim == 128 and not windows
    if name == "flashinfer" and (find_spec("flashinfer") is None or not has_kernels):
        pytest.skip("FlashInfer is not installed, or has no kernels for this shape")


def share_eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every backend reads every shared prefix once, whether or not that pays."""
    monkeypatch.setattr(plan, "GATHERED", GroupCost(rows=1, tokens=0))
    monkeypatch.setattr(cpu_backend, "IN_PLACE", GroupCost(rows=1, tokens=0))
    monkeypatch.setattr(flashinfer_backend, "COST", GroupCost(rows=1, tokens=0))
    for name in ("SHARED_US", "GROUP_US", "TILE_US_PER_TOKEN"):
        monkeypatch.setattr(triton_backend, name, 0.0)


def graphs_for(backend: str, largest: int) -> dict[str, int]:
    """The option for graphs of up to so many rows, for a backend that can be captured; 0 is none for any."""
    return {} if backend in ("torch", "cpu") else {"cuda_graph_max_bs": largest}


class GroupCount:
    """How many batches of an LLM had rows that share a prefix."""

    def __init__(self, llm: LLM) -> None:
        self.num_batches = 0
        forward = llm._forward

        def watched(forward_input: ForwardInput) -> BatchOutput:
            self.num_batches += bool(forward_input.batch.groups)
            return forward(forward_input)

        llm._forward = watched  # type: ignore[method-assign]
