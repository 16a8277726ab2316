"""minisgl: a compact LLM engine made around RadixAttention.

`LLM` and `SamplingParams` are all that most programs need; they load lazily, so `import minisgl` costs nothing.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minisgl.core import SamplingParams
    from minisgl.llm import LLM, AsyncLLM

__version__ = "0.1.0"
__all__ = ["LLM", "AsyncLLM", "SamplingParams", "__version__"]

# torch's own threads otherwise spin for milliseconds after every operation, on cores that those of our kernels want.
# libgomp reads this when torch is loaded.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def __getattr__(name: str) -> Any:
    if name in ("LLM", "AsyncLLM"):
        import minisgl.llm

        return getattr(minisgl.llm, name)
    if name == "SamplingParams":
        import minisgl.core

        return minisgl.core.SamplingParams
    raise AttributeError(f"module 'minisgl' has no attribute {name!r}")
