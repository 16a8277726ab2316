"""Where a test of the whole engine runs: on the CPU always, and on a GPU with each attention backend when asked to."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from minisgl.attention import ATTENTION_BACKENDS

GPU_BACKENDS = ("torch", "triton", "flashinfer")
TARGETS = [
    ("cpu", "torch"),
    *(pytest.param("cuda", name, marks=pytest.mark.gpu) for name in GPU_BACKENDS),
]
"""device, attention backend"""


def require_backend(name: str, dtype: str = "bfloat16", head_dim: int = 128) -> None:
    """Skip the test where there is no such backend, or FlashInfer would have to be compiled for minutes."""
    if name not in ATTENTION_BACKENDS:
        pytest.skip(f"no attention backend {name!r}")
    if name == "flashinfer" and (find_spec("flashinfer") is None or dtype != "bfloat16" or head_dim != 128):
        pytest.skip("FlashInfer is not installed, or has no kernels for this shape")
